import type { Answer } from '../http/answer.ts';
import type { NodeContext } from '../http/binding.ts';
import { deliver, respond } from '../http/delivery.ts';
import type { World } from '../world.ts';
import { planRead, type ReadEndpoint } from './catalogue.ts';
import type { FaultMenu } from './fault-menu.ts';

/** What a read is about: faults and latency belong to a payment (faults of the credits to a customer), null when it leads to none. */
export interface ReadSubject {
  readonly endpoint: ReadEndpoint;
  /** The payment, or the customer. */
  readonly owner_id: string | null;
  /** Milliseconds, real time, before the facts are read. */
  readonly latency_ms: number;
}

/** Answers a read with what `look` finds at that moment, through the fault that waits for it, if any. */
export async function answerRead(
  c: NodeContext,
  world: World,
  subject: ReadSubject,
  look: () => Answer,
  faults: FaultMenu = world.faults,
): Promise<Response> {
  const fault = faults.takeRead(subject.owner_id, subject.endpoint);
  if (fault === null && subject.latency_ms === 0) return respond(c, look());
  const { outgoing } = c.env;
  if ((await world.pauses.pause(subject.latency_ms)) === 'cancelled') {
    return (await deliver(outgoing, look(), { kind: 'cut', reset: false }, world.pauses)).response;
  }
  const delivery = fault === null ? { kind: 'whole' as const } : planRead(fault);
  return (await deliver(outgoing, look(), delivery, world.pauses)).response;
}
