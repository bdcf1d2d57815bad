import type { CreateFault, Fault, ReadEndpoint, ReadFault, WebhookFault } from './catalogue.ts';

/** A fault that is armed, and how many requests it still meets (Infinity: always). */
interface Armed<F> {
  readonly fault: F;
  left: number;
}

function timesOf(fault: Fault): number {
  return fault.times === 'always' ? Number.POSITIVE_INFINITY : fault.times;
}

/** A list of faults, consumed in order; with `cycle` it starts again when all of it is used up. */
class FaultQueue<F extends Fault> {
  readonly #armed: Armed<F>[];
  readonly #cycle: boolean;

  constructor(faults: readonly F[], cycle: boolean) {
    this.#armed = faults.map((fault) => ({ fault, left: timesOf(fault) }));
    this.#cycle = cycle;
  }

  /** The first armed fault that `meets` accepts, one time less; null when there is none. */
  take(meets: (fault: F) => boolean): F | null {
    const armed = this.#armed.find(({ fault, left }) => left > 0 && meets(fault));
    if (armed === undefined) return null;
    armed.left -= 1;
    if (this.#cycle && this.#armed.every(({ left }) => left === 0)) {
      for (const each of this.#armed) each.left = timesOf(each.fault);
    }
    return armed.fault;
  }

  list(): (F & { left: number | 'always' })[] {
    return this.#armed.map(({ fault, left }) => ({ ...fault, left: Number.isFinite(left) ? left : 'always' }));
  }
}

interface FaultSet {
  readonly create: FaultQueue<CreateFault>;
  readonly read: FaultQueue<ReadFault>;
  readonly webhook: FaultQueue<WebhookFault>;
}

function setOf(faults: readonly Fault[], cycle: boolean): FaultSet {
  return {
    create: new FaultQueue(
      faults.filter((fault) => fault.on === 'create'),
      cycle,
    ),
    read: new FaultQueue(
      faults.filter((fault) => fault.on === 'read'),
      cycle,
    ),
    webhook: new FaultQueue(
      faults.filter((fault) => fault.on === 'webhook'),
      cycle,
    ),
  };
}

/** Which faults wait for whom, by payment (or, for the credits, by customer). Its own come first, then those for all. */
export class FaultMenu {
  readonly #own = new Map<string, FaultSet>();
  #default: FaultSet | null = null;

  /** Replaces the faults of a payment; it need not exist yet. */
  arm(paymentId: string, faults: readonly Fault[], cycle: boolean): void {
    this.#own.set(paymentId, setOf(faults, cycle));
  }

  armDefault(faults: readonly Fault[], cycle: boolean): void {
    this.#default = setOf(faults, cycle);
  }

  disarm(paymentId: string): void {
    this.#own.delete(paymentId);
  }

  disarmDefault(): void {
    this.#default = null;
  }

  takeCreate(paymentId: string): CreateFault | null {
    const all = (): boolean => true;
    return this.#own.get(paymentId)?.create.take(all) ?? this.#default?.create.take(all) ?? null;
  }

  takeRead(paymentId: string | null, endpoint: ReadEndpoint): ReadFault | null {
    const meets = (fault: ReadFault): boolean => fault.endpoint === undefined || fault.endpoint === endpoint;
    const own = paymentId === null ? undefined : this.#own.get(paymentId);
    return own?.read.take(meets) ?? this.#default?.read.take(meets) ?? null;
  }

  takeWebhook(paymentId: string): WebhookFault | null {
    const all = (): boolean => true;
    return this.#own.get(paymentId)?.webhook.take(all) ?? this.#default?.webhook.take(all) ?? null;
  }

  /** Faults of a payment, or for all payments with null, with what is left of each. */
  list(paymentId: string | null): { create: unknown[]; read: unknown[]; webhook: unknown[] } {
    const set = paymentId === null ? this.#default : this.#own.get(paymentId);
    return { create: set?.create.list() ?? [], read: set?.read.list() ?? [], webhook: set?.webhook.list() ?? [] };
  }

  reset(): void {
    this.#own.clear();
    this.#default = null;
  }
}
