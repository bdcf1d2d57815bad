import { z } from 'zod';
import { type Answer, problemAnswer, withHeader } from '../http/answer.ts';
import type { Delivery } from '../http/delivery.ts';
import { Currency, DurationMs, PositiveMinorUnits, WaitMs } from '../values.ts';

/** How many requests a fault meets; "always" is for storms. */
const times = z.union([z.int().positive(), z.literal('always')]).default(1);
const code = z.string().min(1).max(64);
const errorStatus = z.int().min(400).max(599);

function createFault<K extends string, P extends z.core.$ZodShape>(kind: K, params: P) {
  return z.strictObject({ kind: z.literal(kind), on: z.literal('create').default('create'), times, ...params });
}

/** Names of the read endpoints, for faults that should meet only one of them. */
export const ReadEndpoint = z.enum(['shop_request', 'shop_order', 'payment', 'refund', 'refund_list', 'grant_list']);
export type ReadEndpoint = z.infer<typeof ReadEndpoint>;

function readFault<K extends string, P extends z.core.$ZodShape>(kind: K, params: P) {
  return z.strictObject({
    kind: z.literal(kind),
    on: z.literal('read').default('read'),
    times,
    endpoint: ReadEndpoint.optional(),
    ...params,
  });
}

function webhookFault<K extends string, P extends z.core.$ZodShape>(kind: K, params: P) {
  return z.strictObject({ kind: z.literal(kind), on: z.literal('webhook').default('webhook'), times, ...params });
}

/** 10 MB, beyond any sane limit for an API answer. */
const HUGE_BYTES = 10 * 1024 * 1024;

/** What can go wrong with a request for an effect: POST /payments/refunds, POST /credits/grants. "After accept" means that the effect is booked first. */
const createFaults = [
  /** Nothing goes wrong: takes a place in a list, so that the next fault meets a later request. */
  createFault('none', {}),
  /** No effect, an error answer. `store`: kept under the key (default: all but 401 403 409 422 429). */
  createFault('reject', {
    code,
    status: errorStatus,
    store: z.boolean().optional(),
    retry_after_s: z.int().nonnegative().optional(),
  }),
  /** No effect, a redirect; who follows it with the body acts twice. */
  createFault('redirect', {
    status: z.union([z.literal(301), z.literal(302), z.literal(303), z.literal(307), z.literal(308)]).default(307),
    location: z.string().min(1).default('/payments/refunds'),
  }),
  createFault('cut_before_accept', { reset: z.boolean().default(false) }),
  createFault('cut_after_accept', { reset: z.boolean().default(false) }),
  /** The effect is booked at once, the answer comes after `hold_ms`; until then the key is in use. */
  createFault('hang_after_accept', { hold_ms: WaitMs }),
  /** The effect itself is late by `delay_ms`, whether or not the client still waits. */
  createFault('accept_late', { delay_ms: WaitMs }),
  /** The effect is booked, the answer is an error; `store`: that error is what the key replays. */
  createFault('error_after_accept', {
    status: errorStatus.default(500),
    code: code.default('internal_error'),
    store: z.boolean().default(true),
  }),
  createFault('html_after_accept', { status: z.int().min(200).max(599).default(502) }),
  createFault('truncated_after_accept', {}),
  createFault('huge_after_accept', {
    bytes: z
      .int()
      .positive()
      .max(64 * 1024 * 1024)
      .default(HUGE_BYTES),
  }),
  createFault('drip_after_accept', { interval_ms: WaitMs }),
  createFault('other_amount', { amount: PositiveMinorUnits }),
  createFault('other_currency', { currency: Currency }),
  /** Two effects of one request. `cut`: and the connection is closed without a byte. */
  createFault('booked_twice', { cut: z.boolean().default(false) }),
  /** Booked without its metadata, or its memo: from outside a lookalike. */
  createFault('metadata_lost', {}),
  /** Booked and answered, but no read shows it for `hide_ms`. */
  createFault('hidden_from_reads', { hide_ms: DurationMs }),
  /** The key is forgotten before this request is judged: a repetition executes again. */
  createFault('key_forgotten', {}),
  createFault('pending_then_succeeded', { after_ms: DurationMs }),
  createFault('pending_then_failed', { after_ms: DurationMs }),
  createFault('succeeded_then_failed', { after_ms: DurationMs }),
  /** Any status word, for good: requires_action, canceled, or one that nobody knows. */
  createFault('other_status', { status: z.string().min(1).max(64) }),
] as const;

/** What can go wrong with a read. */
const readFaults = [
  readFault('read_none', {}),
  readFault('read_error', { status: errorStatus, code: code.default('read_error') }),
  readFault('read_cut', { reset: z.boolean().default(false) }),
  readFault('read_hang', { hold_ms: WaitMs }),
  readFault('read_html', { status: z.int().min(200).max(599).default(502) }),
  readFault('read_truncated', {}),
] as const;

/** What can go wrong with a webhook. */
const webhookFaults = [
  /** The event is delivered `after_ms` after it happened, as it was then. */
  webhookFault('webhook_late', { after_ms: DurationMs }),
  /** The same event, with the same id, is delivered twice. */
  webhookFault('webhook_twice', {}),
] as const;

export const CreateFault = z.discriminatedUnion('kind', createFaults);
export type CreateFault = z.infer<typeof CreateFault>;
export const ReadFault = z.discriminatedUnion('kind', readFaults);
export type ReadFault = z.infer<typeof ReadFault>;
export const WebhookFault = z.discriminatedUnion('kind', webhookFaults);
export type WebhookFault = z.infer<typeof WebhookFault>;
export const Fault = z.discriminatedUnion('kind', [...createFaults, ...readFaults, ...webhookFaults]);
export type Fault = z.infer<typeof Fault>;
/** A fault as it is sent: what has a default may be left out. */
export type FaultInput = z.input<typeof Fault>;

/** Faults that need what the credits do not have: keys, statuses, webhooks. */
const NOT_OF_CREDITS: readonly Fault['kind'][] = [
  'key_forgotten',
  'pending_then_succeeded',
  'pending_then_failed',
  'succeeded_then_failed',
  'other_status',
  'webhook_late',
  'webhook_twice',
];
const CreditFault = Fault.refine(
  (fault) => !NOT_OF_CREDITS.includes(fault.kind),
  'credits have no keys, statuses or webhooks',
);

const oneOrMore = (value: unknown): unknown => (Array.isArray(value) ? value : [value]);
/** One fault, or a list that is consumed in order. */
export const FaultList = z.preprocess(oneOrMore, z.array(Fault).max(10_000));
/** The same for the credits. */
export const CreditFaultList = z.preprocess(oneOrMore, z.array(CreditFault).max(10_000));

/** A status that the refund takes `after_ms` milliseconds after it was made. */
export interface StatusStep {
  readonly after_ms: number;
  readonly status: string;
}

/** Where a request is stopped before it has an effect. */
export type Gate =
  | { readonly kind: 'open' }
  | { readonly kind: 'cut'; readonly reset: boolean }
  /** `stored`: decided inside the idempotency layer, so a repetition of the key replays it. */
  | { readonly kind: 'answered'; readonly answer: Answer; readonly stored: boolean };

/** How the effect differs from what was asked for. */
export interface Booking {
  readonly amount: number | null;
  readonly currency: string | null;
  readonly copies: number;
  readonly keeps_metadata: boolean;
  readonly hidden_ms: number;
  readonly steps: readonly [StatusStep, ...StatusStep[]];
}

/** Everything that a fault changes about one create request; pure data, the handler follows it. */
export interface CreatePlan {
  readonly gate: Gate;
  readonly forgets_key: boolean;
  readonly delay_ms: number;
  readonly booking: Booking;
  /** What is answered and stored instead of the refund. */
  readonly stored_answer: Answer | null;
  readonly delivery: Delivery;
}

const HONEST_BOOKING: Booking = {
  amount: null,
  currency: null,
  copies: 1,
  keeps_metadata: true,
  hidden_ms: 0,
  steps: [{ after_ms: 0, status: 'succeeded' }],
};

/** A provider without faults. */
export const HONEST_PLAN: CreatePlan = {
  gate: { kind: 'open' },
  forgets_key: false,
  delay_ms: 0,
  booking: HONEST_BOOKING,
  stored_answer: null,
  delivery: { kind: 'whole' },
};

/** Statuses that a provider gives before its idempotency layer: they say nothing about the key. */
const STATUSES_BEFORE_KEY: readonly number[] = [401, 403, 409, 422, 429];

function booking(change: Partial<Booking>): CreatePlan {
  return { ...HONEST_PLAN, booking: { ...HONEST_BOOKING, ...change } };
}

function delivery(way: Delivery): CreatePlan {
  return { ...HONEST_PLAN, delivery: way };
}

function answered(answer: Answer, stored: boolean): CreatePlan {
  return { ...HONEST_PLAN, gate: { kind: 'answered', answer, stored } };
}

function turning(first: string, second: string, afterMs: number): CreatePlan {
  return booking({
    steps: [
      { after_ms: 0, status: first },
      { after_ms: afterMs, status: second },
    ],
  });
}

function rejection(fault: Extract<CreateFault, { kind: 'reject' }>): CreatePlan {
  const answer = problemAnswer(fault.status, fault.code, 'The sandbox was told to reject this request.');
  return answered(
    fault.retry_after_s === undefined ? answer : withHeader(answer, 'retry-after', String(fault.retry_after_s)),
    fault.store ?? !STATUSES_BEFORE_KEY.includes(fault.status),
  );
}

function redirection(fault: Extract<CreateFault, { kind: 'redirect' }>): CreatePlan {
  const answer = problemAnswer(fault.status, 'redirected', 'The sandbox was told to redirect this request.');
  return answered(withHeader(answer, 'location', fault.location), false);
}

function errorAfterAccept(fault: Extract<CreateFault, { kind: 'error_after_accept' }>): CreatePlan {
  const answer = problemAnswer(fault.status, fault.code, 'The sandbox was told to answer so after booking.');
  return fault.store ? { ...HONEST_PLAN, stored_answer: answer } : delivery({ kind: 'replaced', answer });
}

/** The page that a gateway in front of an API sends. */
function htmlPage(status: number): Answer {
  return {
    status,
    headers: { 'content-type': 'text/html; charset=utf-8' },
    body: `<!doctype html><html><head><title>${status}</title></head><body><h1>${status}</h1></body></html>`,
    code: null,
  };
}

function hugeAnswer(bytes: number): Answer {
  return {
    status: 201,
    headers: { 'content-type': 'application/json' },
    body: `{"padding":"${'x'.repeat(bytes)}"}`,
    code: null,
  };
}

/** What a fault means for one create request. One case per kind; a new kind does not compile without its case. */
export function planCreate(fault: CreateFault): CreatePlan {
  switch (fault.kind) {
    case 'none':
      return HONEST_PLAN;
    case 'reject':
      return rejection(fault);
    case 'redirect':
      return redirection(fault);
    case 'cut_before_accept':
      return { ...HONEST_PLAN, gate: { kind: 'cut', reset: fault.reset } };
    case 'cut_after_accept':
      return delivery({ kind: 'cut', reset: fault.reset });
    case 'hang_after_accept':
      return delivery({ kind: 'held', hold_ms: fault.hold_ms });
    case 'accept_late':
      return { ...HONEST_PLAN, delay_ms: fault.delay_ms };
    case 'error_after_accept':
      return errorAfterAccept(fault);
    case 'html_after_accept':
      return delivery({ kind: 'replaced', answer: htmlPage(fault.status) });
    case 'truncated_after_accept':
      return delivery({ kind: 'truncated' });
    case 'huge_after_accept':
      return delivery({ kind: 'replaced', answer: hugeAnswer(fault.bytes) });
    case 'drip_after_accept':
      return delivery({ kind: 'dripped', interval_ms: fault.interval_ms });
    case 'other_amount':
      return booking({ amount: fault.amount });
    case 'other_currency':
      return booking({ currency: fault.currency });
    case 'booked_twice':
      return { ...booking({ copies: 2 }), delivery: fault.cut ? { kind: 'cut', reset: false } : { kind: 'whole' } };
    case 'metadata_lost':
      return booking({ keeps_metadata: false });
    case 'hidden_from_reads':
      return booking({ hidden_ms: fault.hide_ms });
    case 'key_forgotten':
      return { ...HONEST_PLAN, forgets_key: true };
    case 'pending_then_succeeded':
      return turning('pending', 'succeeded', fault.after_ms);
    case 'pending_then_failed':
      return turning('pending', 'failed', fault.after_ms);
    case 'succeeded_then_failed':
      return turning('succeeded', 'failed', fault.after_ms);
    case 'other_status':
      return booking({ steps: [{ after_ms: 0, status: fault.status }] });
    default:
      return fault satisfies never;
  }
}

/** What a fault means for one read: how the true answer travels, if at all. */
export function planRead(fault: ReadFault): Delivery {
  switch (fault.kind) {
    case 'read_none':
      return { kind: 'whole' };
    case 'read_error':
      return {
        kind: 'replaced',
        answer: problemAnswer(fault.status, fault.code, 'The sandbox was told to fail this read.'),
      };
    case 'read_cut':
      return { kind: 'cut', reset: fault.reset };
    case 'read_hang':
      return { kind: 'held', hold_ms: fault.hold_ms };
    case 'read_html':
      return { kind: 'replaced', answer: htmlPage(fault.status) };
    case 'read_truncated':
      return { kind: 'truncated' };
    default:
      return fault satisfies never;
  }
}
