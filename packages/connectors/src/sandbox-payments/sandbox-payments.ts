import {
  canonicalJson,
  ExternalId,
  type HttpReply,
  type JsonObject,
  type OneShot,
  type ReadHttp,
} from '@counterstamp/manifest-core';
import { z } from 'zod';
import {
  type Connector,
  type Effect,
  type FieldDiff,
  jsonOf,
  type Observation,
  type ObserveBinding,
  type Outcome,
  type Prepared,
  type ReadOutcome,
  SaidText,
  SaidWord,
  type Settlement,
  saysMissing,
  segment,
  Word,
  withoutReply,
} from '../port.ts';
import { SANDBOX_PAYMENTS_CONTRACT } from './contract.ts';
import { displayRefund, RefundAction } from './refund-action.ts';

/** A payment as the provider sees it; amounts in ISO minor units. */
export const PaymentFacts = z.object({
  payment_id: ExternalId,
  captured_amount_minor: z.int(),
  refundable_amount_minor: z.int(),
  currency: z.string(),
  disputed: z.boolean(),
});
export type PaymentFacts = z.infer<typeof PaymentFacts>;

/** As the provider sends them: its own words stand escaped in the facts. */
const PaymentRecord = PaymentFacts.extend({ currency: SaidWord });
const Versioned = z.looseObject({ version: z.int() });

const RefundRecord = z.object({
  refund_id: Word,
  payment_id: SaidWord,
  amount: z.int(),
  currency: SaidWord,
  status: SaidWord,
  // Free text where the refund is somebody else's, and then no reason to know nothing of ours.
  reason: SaidText.nullable().catch(null),
  metadata: z.record(z.string(), z.unknown()),
});
const RefundPage = z.object({ refunds: z.array(RefundRecord), has_more: z.boolean() });
const Problem = z.object({ code: Word });

/**
 * Refusals that the provider documents as having had no effect. Whatever is not listed is uncertain, conflicts about the key included.
 * Source: apps/sandbox/README.md, "A request is judged in this order".
 */
const REJECTIONS: Readonly<Record<string, 'never' | 'new-approval'>> = {
  invalid_json: 'never',
  invalid_request: 'never',
  idempotency_key_missing: 'never',
  idempotency_key_too_long: 'never',
  body_too_large: 'never',
  unauthorized: 'never',
  permission_denied: 'never',
  payment_not_found: 'never',
  currency_mismatch: 'new-approval',
  charge_disputed: 'new-approval',
  charge_not_refundable: 'new-approval',
  amount_exceeds_refundable: 'new-approval',
};

/** Pages of a payment's refunds that a look-up reads at most; more makes the answer unknown rather than incomplete. */
const PAGES_MAX = 20;

export interface SandboxPaymentsOptions {
  /** Base URL of the provider. */
  url: string;
  /** May create refunds; only the executor has it. */
  writeKey: string | null;
  /** May only read. */
  readKey: string;
  http: ReadHttp;
  timeoutMs: number;
}

export function createSandboxPayments(options: SandboxPaymentsOptions): Connector {
  const reading = { headers: { authorization: `Bearer ${options.readKey}` }, timeoutMs: options.timeoutMs };

  return {
    contract: SANDBOX_PAYMENTS_CONTRACT,
    reads: {
      async read_payment(args): Promise<ReadOutcome> {
        const path = `/payments/payments/${segment(args.payment_id)}`;
        const reply = await options.http.get(`${options.url}${path}`, reading);
        const source_ref = `sandbox-payments:${path}`;
        if (reply.kind === 'unreachable') return { kind: 'failed', reason: reply.reason };
        if (saysMissing(reply, 'payment_not_found')) return { kind: 'missing', source_ref };
        if (reply.status !== 200) return { kind: 'failed', reason: `status_${reply.status}` };
        const body = jsonOf(reply);
        const facts = PaymentRecord.safeParse(body);
        const version = Versioned.safeParse(body);
        if (!facts.success) return { kind: 'failed', reason: 'unrecognised_body' };
        return {
          kind: 'found',
          record: {
            kind: 'payment_record',
            source_ref,
            version_marker: version.success ? String(version.data.version) : null,
            facts: facts.data,
          },
        };
      },
    },

    display: (action) => displayRefund(RefundAction.parse(action)),

    prepare(action, bind): Prepared {
      const refund = RefundAction.parse(action);
      const body = canonicalJson({
        payment_id: refund.destination,
        amount: refund.amount_minor,
        currency: refund.currency,
        reason: refund.reason,
        metadata: {
          run_id: bind.run_id,
          action_digest: bind.action_digest,
          order_id: refund.order_id,
          request: refund.metadata,
        },
      });
      return {
        request: {
          method: 'POST',
          url: `${options.url}/payments/refunds`,
          headers: {
            'content-type': 'application/json',
            authorization: `Bearer ${options.writeKey ?? ''}`,
            'idempotency-key': bind.idempotency_key,
          },
        },
        bytes: new TextEncoder().encode(body),
      };
    },

    async execute(prepared: Prepared, transport: OneShot): Promise<Outcome> {
      const result = await transport.send(prepared.bytes);
      return result.kind === 'reply' ? classifyRefundReply(result) : withoutReply(result);
    },

    async observe(action, bind): Promise<Observation> {
      const refund = RefundAction.parse(action);
      const effects: Effect[] = [];
      let after = '';
      for (let page = 0; ; page++) {
        if (page === PAGES_MAX) return { kind: 'unknown', reason: 'too_many_refunds' };
        const reply = await options.http.get(
          `${options.url}/payments/refunds?payment_id=${encodeURIComponent(refund.destination)}&limit=100${after}`,
          reading,
        );
        if (reply.kind === 'unreachable') return { kind: 'unknown', reason: reply.reason };
        const parsed = RefundPage.safeParse(jsonOf(reply));
        if (reply.status !== 200) return { kind: 'unknown', reason: `status_${reply.status}` };
        if (!parsed.success) return { kind: 'unknown', reason: 'unrecognised_body' };
        effects.push(...parsed.data.refunds.map(effectOf));
        const last = parsed.data.refunds.at(-1);
        if (!parsed.data.has_more) break;
        if (last === undefined) return { kind: 'unknown', reason: 'empty_page' };
        after = `&after=${encodeURIComponent(last.refund_id)}`;
      }
      return matchEffects(refund, bind, effects);
    },
  };
}

function effectOf(record: z.infer<typeof RefundRecord>): Effect {
  const tag = Word.safeParse(record.metadata.run_id);
  const digest = Word.safeParse(record.metadata.action_digest);
  return {
    provider_ref: record.refund_id,
    amount_minor: record.amount,
    currency: record.currency,
    destination: record.payment_id,
    status: record.status,
    reason: record.reason,
    settlement: settlementOf(record.status),
    run_id: tag.success ? tag.data : null,
    ...(digest.success ? { action_digest: digest.data } : {}),
  };
}

function settlementOf(status: string): Settlement {
  switch (status) {
    case 'succeeded':
      return 'final';
    case 'pending':
    case 'requires_action':
      return 'pending';
    case 'failed':
    case 'canceled':
      return 'failed';
    default:
      return 'unrecognised';
  }
}

/** What the provider's answer to a refund says, and nothing more. Pure. */
export function classifyRefundReply(reply: HttpReply): Outcome {
  const body = jsonOf(reply);
  if (reply.status === 201 || reply.status === 200) {
    const record = RefundRecord.safeParse(body);
    if (!record.success) return { class: 'uncertain', reason: 'unrecognised_success_body' };
    return {
      class: 'applied',
      effect: effectOf(record.data),
      replayed: reply.headers['idempotent-replayed'] === 'true',
    };
  }
  const problem = Problem.safeParse(body);
  const code = problem.success ? problem.data.code : undefined;
  if (reply.status === 429) return { class: 'retry_safe', reason: code ?? 'rate_limited' };
  if (reply.status < 400 || reply.status >= 500 || code === undefined)
    return { class: 'uncertain', reason: code ?? `status_${reply.status}` };
  const retryable = Object.hasOwn(REJECTIONS, code) ? REJECTIONS[code] : undefined;
  return retryable === undefined ? { class: 'uncertain', reason: code } : { class: 'rejected', code, retryable };
}

/**
 * Which of a payment's refunds is this run's. Ours carries our run id or is what our own reply named; the same amount without our tag is
 * a lookalike, never ours. Pure.
 */
export function matchEffects(action: RefundAction, bind: ObserveBinding, effects: readonly Effect[]): Observation {
  const named = new Set(bind.attempts.map((attempt) => attempt.provider_ref).filter((ref) => ref !== null));
  const ours = effects.filter((effect) => effect.run_id === bind.run_id || named.has(effect.provider_ref));
  const [effect, second] = ours;
  if (effect !== undefined && second !== undefined) return { kind: 'found', match: 'multiple', effects: ours };
  if (effect !== undefined) {
    const differing = differences(action, bind, effect);
    return differing.length === 0
      ? { kind: 'found', match: 'exact', effect }
      : { kind: 'found', match: 'different', effect, differing };
  }
  const lookalikes = effects.filter(
    (other) =>
      other.run_id === null &&
      other.amount_minor === action.amount_minor &&
      other.currency === action.currency &&
      other.settlement !== 'failed',
  );
  return lookalikes.length > 0
    ? { kind: 'found', match: 'lookalike', effects: lookalikes }
    : { kind: 'absent', strength: 'strong' };
}

/** Fields of a refund that the provider's record shows. */
const OBSERVABLE: Readonly<Record<string, (effect: Effect) => string>> = {
  amount_minor: (effect) => String(effect.amount_minor),
  currency: (effect) => effect.currency,
  destination: (effect) => effect.destination,
  reason: (effect) => effect.reason ?? '(none)',
};

/** Every declared field that is not as approved, our own reference, and the digest of what was approved where the record carries one. */
function differences(
  action: RefundAction,
  { run_id, action_digest, fields }: ObserveBinding,
  effect: Effect,
): FieldDiff[] {
  const approved: JsonObject = action;
  const compared = fields.map((field): FieldDiff => {
    const observe = Object.hasOwn(OBSERVABLE, field) ? OBSERVABLE[field] : undefined;
    if (observe === undefined) throw new RangeError(`a refund's ${field} cannot be observed`);
    const value = approved[field];
    return { field, approved: typeof value === 'string' ? value : JSON.stringify(value), observed: observe(effect) };
  });
  compared.push({ field: 'run_id', approved: run_id, observed: effect.run_id ?? '(none)' });
  // Somebody who refunds by hand under our run id leaves it out; who names another action's digest made another effect.
  if (effect.action_digest !== undefined)
    compared.push({ field: 'action_digest', approved: action_digest, observed: effect.action_digest });
  return compared.filter((diff) => diff.approved !== diff.observed);
}
