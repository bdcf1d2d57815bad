import { z } from 'zod';
import { type CreatePlan, HONEST_PLAN, planCreate } from '../faults/catalogue.ts';
import { type Answer, jsonAnswer, problemAnswer, withHeader } from '../http/answer.ts';
import type { NodeContext } from '../http/binding.ts';
import { parseJson, readBody, requestDigest, sha256Hex } from '../http/body.ts';
import { abortedByClient, cut, type Delivery, deliver } from '../http/delivery.ts';
import { Currency, Id, Metadata, PositiveMinorUnits, Reason } from '../values.ts';
import type { World } from '../world.ts';
import { refuseAccess } from './authority.ts';
import { decideRefund } from './decide-refund.ts';
import type { KeyUse } from './idempotency-keys.ts';
import type { LedgerEntry, LedgerOutcome } from './ledger.ts';
import { type Payment, refundView, runIdOf } from './payment.ts';

/** Largest body in bytes. 64 KB: an 8 KB metadata object fits many times over. */
const BODY_BYTES_MAX = 64 * 1024;

/** Longest idempotency key, in characters; the limit of the strictest provider in connectors.md. */
const KEY_LENGTH_MAX = 255;

const RefundBody = z.strictObject({
  payment_id: Id,
  /** Minor units; left out it means the whole rest. */
  amount: PositiveMinorUnits.optional(),
  currency: Currency,
  reason: Reason,
  metadata: Metadata.default({}),
});
type RefundBody = z.infer<typeof RefundBody>;

/** What the request is worth before key and faults are looked at. */
type Admission =
  | {
      readonly kind: 'admitted';
      readonly body: RefundBody;
      readonly body_sha256: string;
      readonly key: string;
      readonly payment: Payment;
    }
  | { readonly kind: 'turned_away'; readonly answer: Answer }
  | { readonly kind: 'abandoned' };

/** What is sent, how, and the key's use that waits for it (null: the answer is not stored). */
interface Verdict {
  readonly outcome: Exclude<LedgerOutcome, 'running' | 'cut'>;
  readonly effect_refund_id: string | null;
  readonly answer: Answer;
  readonly delivery: Delivery;
  readonly use: KeyUse | null;
}

const WHOLE: Delivery = { kind: 'whole' };

/** POST /payments/refunds: ledger → access → validation → fault → key → decision → booking → answer. */
export async function createRefund(c: NodeContext, world: World): Promise<Response> {
  const { outgoing } = c.env;
  const entry = world.ledger.open(world.clock, c.req.header('idempotency-key') ?? null);
  outgoing.once('close', () => {
    entry.aborted ||= abortedByClient(outgoing);
  });
  const judgement = await judge(c, world, entry);
  if (judgement.kind === 'cut') {
    entry.outcome = 'cut';
    return cut(outgoing, judgement.reset).response;
  }
  if (judgement.kind === 'abandoned') {
    entry.outcome = 'refused';
    entry.aborted = true;
    return cut(outgoing, false).response;
  }
  const { outcome, effect_refund_id, answer, delivery, use } = judgement.verdict;
  entry.outcome = outcome;
  entry.effect_refund_id = effect_refund_id;
  entry.http_status = answer.status;
  entry.code = answer.code;
  // While an answer is held the provider still works on the request, so its key stays in use.
  if (delivery.kind !== 'held' && use !== null) use.answer = answer;
  const end = await deliver(outgoing, answer, delivery, world.pauses);
  if (use !== null) use.answer = answer;
  if (end.cut) entry.outcome = 'cut';
  return end.response;
}

type Judgement =
  | { readonly kind: 'verdict'; readonly verdict: Verdict }
  | { readonly kind: 'cut'; readonly reset: boolean }
  | { readonly kind: 'abandoned' };

/** From the request to its verdict; the effect, if any, is booked when this returns. */
async function judge(c: NodeContext, world: World, entry: LedgerEntry): Promise<Judgement> {
  const admission = await admit(c, world, entry);
  if (admission.kind === 'abandoned') return admission;
  if (admission.kind === 'turned_away') return refused(admission.answer);
  const fault = world.faults.takeCreate(admission.payment.payment_id);
  entry.fault = fault === null || fault.kind === 'none' ? null : fault.kind;
  const plan = fault === null ? HONEST_PLAN : planCreate(fault);
  if (plan.gate.kind === 'cut') return plan.gate;
  if (plan.gate.kind === 'answered' && !plan.gate.stored) return refused(plan.gate.answer);
  return useKey(world, entry, admission, plan);
}

function refused(answer: Answer, use: KeyUse | null = null): Judgement {
  return { kind: 'verdict', verdict: { outcome: 'refused', effect_refund_id: null, answer, delivery: WHOLE, use } };
}

/** Reads and checks the request; nothing here depends on faults or earlier requests. */
async function admit(c: NodeContext, world: World, entry: LedgerEntry): Promise<Admission> {
  const read = await readBody(c.env.incoming, BODY_BYTES_MAX);
  if (read.kind === 'abandoned') return read;
  if (read.kind === 'too_large') {
    const answer = problemAnswer(413, 'body_too_large', `The body is larger than ${BODY_BYTES_MAX} bytes.`);
    return turnedAway(withHeader(answer, 'connection', 'close'));
  }
  const bodySha256 = sha256Hex(read.bytes);
  entry.body_sha256 = bodySha256;
  entry.body_digest = requestDigest(read.bytes);
  entry.body = read.bytes.toString('utf8');
  const parsed = parseJson(read.bytes, RefundBody);
  if (parsed.ok) {
    entry.payment_id = parsed.value.payment_id;
    entry.run_id = runIdOf(parsed.value.metadata);
  } else {
    entry.payment_id = paymentIdOfBadBody(entry.body);
  }
  const noAccess = refuseAccess(c.req.header('authorization'), 'write');
  if (noAccess !== null) return turnedAway(noAccess);
  const key = entry.idempotency_key;
  if (key === null || key === '') {
    return turnedAway(problemAnswer(400, 'idempotency_key_missing', 'Send an Idempotency-Key header.'));
  }
  if (key.length > KEY_LENGTH_MAX) {
    return turnedAway(problemAnswer(400, 'idempotency_key_too_long', `At most ${KEY_LENGTH_MAX} characters.`));
  }
  if (!parsed.ok) return turnedAway(parsed.answer);
  const payment = world.payments.get(parsed.value.payment_id);
  if (payment === undefined) return turnedAway(paymentNotFound());
  return { kind: 'admitted', body: parsed.value, body_sha256: bodySha256, key, payment };
}

function turnedAway(answer: Answer): Admission {
  return { kind: 'turned_away', answer };
}

export function paymentNotFound(): Answer {
  return problemAnswer(404, 'payment_not_found', 'There is no such payment.');
}

/** The payment that a refused body names, so that the ledger of that payment shows the attempt. */
function paymentIdOfBadBody(text: string): string | null {
  try {
    const loose = z.object({ payment_id: Id }).safeParse(JSON.parse(text));
    return loose.success ? loose.data.payment_id : null;
  } catch {
    return null;
  }
}

/** The idempotency layer and what lies behind it: replays, refuses, or books the effect. */
async function useKey(
  world: World,
  entry: LedgerEntry,
  admitted: Extract<Admission, { kind: 'admitted' }>,
  plan: CreatePlan,
): Promise<Judgement> {
  const { body, body_sha256, key, payment } = admitted;
  if (plan.forgets_key) world.keys.forget(key);
  const claim = world.keys.claim(key, body_sha256, world.clock.now(), world.keyRetentionMs);
  switch (claim.kind) {
    case 'body_mismatch':
      return refused(problemAnswer(422, 'idempotency_body_mismatch', 'The key was used with another body.'));
    case 'in_use':
      return refused(problemAnswer(409, 'idempotency_key_in_use', 'A request with this key is running.'));
    case 'replay': {
      if ((await world.pauses.pause(payment.latency_ms)) === 'cancelled') return { kind: 'cut', reset: false };
      const answer = withHeader(claim.answer, 'idempotent-replayed', 'true');
      const { delivery } = plan;
      return { kind: 'verdict', verdict: { outcome: 'replayed', effect_refund_id: null, answer, delivery, use: null } };
    }
    case 'new':
      if ((await world.pauses.pause(payment.latency_ms + plan.delay_ms)) === 'cancelled') {
        world.keys.forget(key);
        return { kind: 'cut', reset: false };
      }
      if (plan.gate.kind === 'answered') return refused(plan.gate.answer, claim.use);
      return bookOrRefuse(world, entry, body, payment, plan, claim.use);
    default:
      return claim satisfies never;
  }
}

/** Decides and books in one synchronous step, so that two requests cannot both get the last cent. */
function bookOrRefuse(
  world: World,
  entry: LedgerEntry,
  body: RefundBody,
  payment: Payment,
  plan: CreatePlan,
  use: KeyUse,
): Judgement {
  const now = world.clock.now();
  const decision = decideRefund(payment, body, now);
  // A refusal is answered plainly: an "after accept" fault has nothing to come after.
  if (decision.kind === 'refused') return refused(decision.answer, use);
  const toBook = {
    amount: decision.amount,
    currency: body.currency,
    reason: body.reason,
    metadata: body.metadata,
    idempotency_key: entry.idempotency_key,
    request_seq: entry.seq,
  };
  const first = world.bookRefund(payment, toBook, now, plan.booking);
  for (let copy = 1; copy < plan.booking.copies; copy += 1) world.bookRefund(payment, toBook, now, plan.booking);
  const answer = plan.stored_answer ?? jsonAnswer(201, refundView(first, now));
  const { delivery } = plan;
  return {
    kind: 'verdict',
    verdict: { outcome: 'accepted', effect_refund_id: first.refund_id, answer, delivery, use },
  };
}
