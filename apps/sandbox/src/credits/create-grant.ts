import { z } from 'zod';
import { HONEST_PLAN, planCreate } from '../faults/catalogue.ts';
import { type Answer, jsonAnswer, problemAnswer, withHeader } from '../http/answer.ts';
import type { NodeContext } from '../http/binding.ts';
import { parseJson, readBody, requestDigest, sha256Hex } from '../http/body.ts';
import { abortedByClient, cut, type Delivery, deliver } from '../http/delivery.ts';
import { refuseAccess } from '../provider/authority.ts';
import { Currency, Id, PositiveMinorUnits } from '../values.ts';
import type { World } from '../world.ts';
import { grantView } from './credit-books.ts';
import type { GrantLedgerEntry } from './grant-ledger.ts';

/** Largest body in bytes. 16 KB: four short members fit many times over. */
const BODY_BYTES_MAX = 16 * 1024;

/** Longest memo in characters. */
export const MEMO_LENGTH_MAX = 140;

const GrantBody = z.strictObject({
  customer_id: Id,
  amount: PositiveMinorUnits,
  currency: Currency,
  /** Kept and shown as it came; nothing is looked up by it. */
  memo: z.string().max(MEMO_LENGTH_MAX),
});

type Judgement =
  | { readonly kind: 'refused'; readonly answer: Answer }
  | { readonly kind: 'booked'; readonly answer: Answer; readonly delivery: Delivery }
  | { readonly kind: 'cut'; readonly reset: boolean }
  | { readonly kind: 'abandoned' };

/** POST /credits/grants: ledger → access → validation → fault → booking → answer. No key: the same body again is another grant. */
export async function createGrant(c: NodeContext, world: World): Promise<Response> {
  const { outgoing } = c.env;
  const entry = world.credits.ledger.open(world.clock);
  outgoing.once('close', () => {
    entry.aborted ||= abortedByClient(outgoing);
  });
  const judgement = await judge(c, world, entry);
  switch (judgement.kind) {
    case 'cut':
      entry.outcome = 'cut';
      return cut(outgoing, judgement.reset).response;
    case 'abandoned':
      entry.outcome = 'refused';
      entry.aborted = true;
      return cut(outgoing, false).response;
    case 'refused':
    case 'booked': {
      const { answer } = judgement;
      entry.outcome = judgement.kind === 'booked' ? 'accepted' : 'refused';
      entry.http_status = answer.status;
      entry.code = answer.code;
      const delivery: Delivery = judgement.kind === 'booked' ? judgement.delivery : { kind: 'whole' };
      const end = await deliver(outgoing, answer, delivery, world.pauses);
      if (end.cut) entry.outcome = 'cut';
      return end.response;
    }
    default:
      return judgement satisfies never;
  }
}

/** From the request to what is answered; the grant, if any, is booked when this returns. */
async function judge(c: NodeContext, world: World, entry: GrantLedgerEntry): Promise<Judgement> {
  const { credits } = world;
  const read = await readBody(c.env.incoming, BODY_BYTES_MAX);
  if (read.kind === 'abandoned') return read;
  if (read.kind === 'too_large') {
    const answer = problemAnswer(413, 'body_too_large', `The body is larger than ${BODY_BYTES_MAX} bytes.`);
    return refused(withHeader(answer, 'connection', 'close'));
  }
  entry.body_sha256 = sha256Hex(read.bytes);
  entry.body_digest = requestDigest(read.bytes);
  entry.body = read.bytes.toString('utf8');
  const parsed = parseJson(read.bytes, GrantBody);
  if (parsed.ok) {
    entry.customer_id = parsed.value.customer_id;
    entry.memo = parsed.value.memo;
  }
  const noAccess = refuseAccess(c.req.header('authorization'), 'write');
  if (noAccess !== null) return refused(noAccess);
  if (!parsed.ok) return refused(parsed.answer);
  const asked = parsed.value;
  if (!credits.customers.has(asked.customer_id)) return refused(customerNotFound());

  const fault = credits.faults.takeCreate(asked.customer_id);
  entry.fault = fault === null || fault.kind === 'none' ? null : fault.kind;
  const plan = fault === null ? HONEST_PLAN : planCreate(fault);
  if (plan.gate.kind === 'cut') return plan.gate;
  if (plan.gate.kind === 'answered') return refused(plan.gate.answer);
  if ((await world.pauses.pause(plan.delay_ms)) === 'cancelled') return { kind: 'cut', reset: false };

  const now = world.clock.now();
  const toBook = { ...asked, request_seq: entry.seq };
  const first = credits.book(toBook, now, plan.booking);
  for (let copy = 1; copy < plan.booking.copies; copy += 1) credits.book(toBook, now, plan.booking);
  entry.effect_grant_id = first.grant_id;
  return { kind: 'booked', answer: plan.stored_answer ?? jsonAnswer(200, grantView(first)), delivery: plan.delivery };
}

function refused(answer: Answer): Judgement {
  return { kind: 'refused', answer };
}

export function customerNotFound(): Answer {
  return problemAnswer(404, 'customer_not_found', 'There is no such customer.');
}
