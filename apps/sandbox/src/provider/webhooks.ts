import { createHmac } from 'node:crypto';
import { type ClientRequest, request } from 'node:http';
import { type EpochMs, isoTime, type SettableClock } from '../clock.ts';
import type { FaultMenu } from '../faults/fault-menu.ts';
import { Pauses } from '../pauses.ts';
import { type Refund, type RefundView, refundView, type StatusAt } from './payment.ts';

/** What the deliveries are signed with. No secret: the sandbox holds no money. */
export const WEBHOOK_SECRET = 'whsec_sandbox';

/** Header of every delivery, see `signWebhook`. */
export const WEBHOOK_SIGNATURE_HEADER = 'sandbox-signature';

/** Milliseconds, real time, that a receiver may take. It gets no second try. */
const DELIVERY_MS = 5_000;

/** Milliseconds, real time, between two looks at a clock that stands still or is pushed, at least and at most. */
const LOOK_MIN_MS = 20;
const LOOK_MAX_MS = 3_600_000;

/** One event, as it was when it happened. */
export interface WebhookEvent {
  /** The same on every delivery of the event. */
  readonly event_id: string;
  readonly type: 'refund.created' | 'refund.updated' | 'refund.failed';
  readonly created_at: string;
  readonly refund: RefundView;
}

/** The signature of a delivery: `t=<Unix seconds>,v1=<hex>`, HMAC-SHA256 under `WEBHOOK_SECRET` over `<t>.<body>`. */
export function signWebhook(body: string, at: EpochMs): string {
  const t = Math.floor(at / 1000);
  return `t=${t},v1=${createHmac('sha256', WEBHOOK_SECRET).update(`${t}.${body}`).digest('hex')}`;
}

interface Due {
  readonly at: EpochMs;
  readonly act: () => void;
}

/** Tells a receiver what becomes of refunds. Nothing waits for it: a receiver that hangs or is away changes no answer. */
export class Webhooks {
  /** Where events go; null: nowhere, and they are not kept for later. */
  url: string | null = null;
  readonly #clock: SettableClock;
  readonly #faults: FaultMenu;
  readonly #pauses = new Pauses();
  readonly #due = new Set<Due>();
  readonly #sending = new Set<ClientRequest>();
  #eventCount = 0;
  #stopped = false;

  constructor(clock: SettableClock, faults: FaultMenu) {
    this.#clock = clock;
    this.#faults = faults;
  }

  /** Announces one status of a refund at its time; one that was dropped before then is never announced. */
  announce(refund: Refund, step: StatusAt): void {
    this.#when(step.at, () => {
      if (this.url === null || !refund.timeline.includes(step)) return;
      const body = JSON.stringify(this.#eventOf(refund, step));
      const fault = this.#faults.takeWebhook(refund.payment_id);
      const lateMs = fault?.kind === 'webhook_late' ? fault.after_ms : 0;
      this.#when(this.#clock.now() + lateMs, () => {
        this.#deliver(body);
        if (fault?.kind === 'webhook_twice') this.#deliver(body);
      });
    });
  }

  /** Does what is due by now; to be called when the clock was pushed. */
  catchUp(): void {
    const byTime = [...this.#due].sort((a, b) => a.at - b.at);
    for (const due of byTime) {
      if (due.at > this.#clock.now()) return;
      if (this.#due.delete(due)) due.act();
    }
  }

  reset(): void {
    this.#due.clear();
    this.#pauses.cancelAll();
    for (const sent of this.#sending) sent.destroy();
    this.url = null;
    this.#eventCount = 0;
  }

  /** Ends deliveries that are running and makes no more. */
  stop(): void {
    this.#stopped = true;
    this.reset();
  }

  #when(at: EpochMs, act: () => void): void {
    if (this.#stopped) return;
    if (at <= this.#clock.now()) {
      act();
      return;
    }
    const due: Due = { at, act };
    this.#due.add(due);
    void this.#wait(due);
  }

  async #wait(due: Due): Promise<void> {
    while (this.#due.has(due)) {
      const leftMs = due.at - this.#clock.now();
      const end = await this.#pauses.pause(Math.min(Math.max(leftMs, LOOK_MIN_MS), LOOK_MAX_MS));
      if (end === 'cancelled') return;
      this.catchUp();
    }
  }

  #eventOf(refund: Refund, step: StatusAt): WebhookEvent {
    this.#eventCount += 1;
    const changed = step.status === 'failed' ? 'refund.failed' : 'refund.updated';
    return {
      event_id: `evt_${this.#eventCount.toString(16).padStart(8, '0')}`,
      type: step === refund.timeline[0] ? 'refund.created' : changed,
      created_at: isoTime(step.at),
      refund: { ...refundView(refund, step.at), status: step.status },
    };
  }

  #deliver(body: string): void {
    if (this.url === null) return;
    const sent = request(this.url, {
      agent: false,
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        [WEBHOOK_SIGNATURE_HEADER]: signWebhook(body, this.#clock.now()),
      },
      signal: AbortSignal.timeout(DELIVERY_MS),
    });
    this.#sending.add(sent);
    sent.on('response', (response) => response.on('error', () => {}).resume());
    // Away, refused or too slow: the event is lost, as at a provider that gives up.
    sent.on('error', () => {});
    sent.on('close', () => this.#sending.delete(sent));
    sent.end(body);
  }
}
