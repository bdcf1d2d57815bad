import {
  canonicalJson,
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
  SaidText,
  SaidWord,
  Word,
  withoutReply,
} from '../port.ts';
import { LEGACY_CREDITS_CONTRACT } from './contract.ts';
import { CreditAction, displayCredit, readMemo, taggedMemo } from './credit-action.ts';

const GrantRecord = z.object({
  grant_id: Word,
  customer_id: SaidWord,
  amount: z.int(),
  currency: SaidWord,
  // Free text where the grant is somebody else's.
  memo: z.string(),
});
const GrantPage = z.object({ grants: z.array(GrantRecord), has_more: z.boolean() });
const Problem = z.object({ code: Word });

/** What goes over the wire, read back from the bytes that were sent. */
const SentGrant = z.strictObject({ customer_id: z.string(), amount: z.int(), currency: z.string(), memo: z.string() });
type SentGrant = z.infer<typeof SentGrant>;

/** Status and code of the refusals that are documented as having had no effect. Source: apps/sandbox/README.md, "Credits". */
const REJECTIONS: Readonly<Record<string, number>> = {
  invalid_json: 400,
  invalid_request: 400,
  unauthorized: 401,
  permission_denied: 403,
  customer_not_found: 404,
  body_too_large: 413,
};

/** Pages of a customer's credits that a look-up reads at most; more makes the answer unknown rather than incomplete. */
const PAGES_MAX = 20;

export interface LegacyCreditsOptions {
  /** Base URL of the credit system. */
  url: string;
  /** May grant credits; only the executor has it. */
  writeKey: string | null;
  /** May only read. */
  readKey: string;
  http: ReadHttp;
  timeoutMs: number;
}

/** Credits by a system without idempotency. One send per approved action is all that stands against a second effect. */
export function createLegacyCredits(options: LegacyCreditsOptions): Connector {
  const reading = { headers: { authorization: `Bearer ${options.readKey}` }, timeoutMs: options.timeoutMs };

  return {
    contract: LEGACY_CREDITS_CONTRACT,
    reads: {},

    display: (action) => displayCredit(CreditAction.parse(action)),

    prepare(action, bind): Prepared {
      const credit = CreditAction.parse(action);
      const sent: SentGrant = {
        customer_id: credit.customer_id,
        amount: credit.amount_minor,
        currency: credit.currency,
        memo: taggedMemo(bind.run_id, credit.memo),
      };
      return {
        request: {
          method: 'POST',
          url: `${options.url}/credits/grants`,
          headers: { 'content-type': 'application/json', authorization: `Bearer ${options.writeKey ?? ''}` },
        },
        bytes: new TextEncoder().encode(canonicalJson(sent)),
      };
    },

    async execute(prepared: Prepared, transport: OneShot): Promise<Outcome> {
      const result = await transport.send(prepared.bytes);
      if (result.kind !== 'reply') return withoutReply(result);
      return classifyGrantReply(SentGrant.parse(JSON.parse(new TextDecoder().decode(prepared.bytes))), result);
    },

    async observe(action, bind): Promise<Observation> {
      const credit = CreditAction.parse(action);
      const effects: Effect[] = [];
      let after = '';
      for (let page = 0; ; page++) {
        if (page === PAGES_MAX) return { kind: 'unknown', reason: 'too_many_grants' };
        const reply = await options.http.get(
          `${options.url}/credits/grants?customer_id=${encodeURIComponent(credit.customer_id)}&limit=100${after}`,
          reading,
        );
        if (reply.kind === 'unreachable') return { kind: 'unknown', reason: reply.reason };
        if (reply.status !== 200) return { kind: 'unknown', reason: `status_${reply.status}` };
        const parsed = GrantPage.safeParse(jsonOf(reply));
        if (!parsed.success) return { kind: 'unknown', reason: 'unrecognised_body' };
        effects.push(...parsed.data.grants.map(effectOf));
        const last = parsed.data.grants.at(-1);
        if (!parsed.data.has_more) break;
        if (last === undefined) return { kind: 'unknown', reason: 'empty_page' };
        after = `&after=${encodeURIComponent(last.grant_id)}`;
      }
      return matchGrants(credit, bind, effects);
    },
  };
}

/** A credit stands as soon as it is in the books: there is no status that could turn. The memo's text takes the place of a reason. */
function effectOf(record: z.infer<typeof GrantRecord>): Effect {
  const { run_id, text } = readMemo(record.memo);
  return {
    provider_ref: record.grant_id,
    amount_minor: record.amount,
    currency: record.currency,
    destination: record.customer_id,
    status: 'granted',
    reason: SaidText.parse(text),
    settlement: 'final',
    run_id,
  };
}

/**
 * What the answer to a grant says. Success is believed only when it echoes our memo and the amount: anything else may be a gateway's cached
 * answer, or a credit that is not as approved, and is looked up. Pure.
 */
export function classifyGrantReply(sent: SentGrant, reply: HttpReply): Outcome {
  const body = jsonOf(reply);
  if (reply.status >= 200 && reply.status < 300) {
    const record = GrantRecord.safeParse(body);
    if (!record.success) return { class: 'uncertain', reason: 'unrecognised_success_body' };
    const { customer_id, amount, currency, memo } = record.data;
    if (memo !== sent.memo) return { class: 'uncertain', reason: 'memo_not_echoed' };
    if (amount !== sent.amount || currency !== sent.currency || customer_id !== sent.customer_id)
      return { class: 'uncertain', reason: 'grant_differs' };
    return { class: 'applied', effect: effectOf(record.data), replayed: false };
  }
  const problem = Problem.safeParse(body);
  const code = problem.success ? problem.data.code : undefined;
  if (code === undefined) return { class: 'uncertain', reason: `status_${reply.status}` };
  const documented = Object.hasOwn(REJECTIONS, code) && REJECTIONS[code] === reply.status;
  return documented ? { class: 'rejected', code, retryable: 'never' } : { class: 'uncertain', reason: code };
}

/**
 * Which of a customer's credits is this run's: the one whose memo carries our run id, or that our own reply named. An equal one without a tag
 * is a lookalike, never ours; one with another run's tag is that run's. None at all proves nothing before the replica has caught up. Pure.
 */
export function matchGrants(action: CreditAction, bind: ObserveBinding, effects: readonly Effect[]): Observation {
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
      other.run_id === null && other.amount_minor === action.amount_minor && other.currency === action.currency,
  );
  return lookalikes.length > 0
    ? { kind: 'found', match: 'lookalike', effects: lookalikes }
    : { kind: 'absent', strength: 'eventual' };
}

/** Members of the action that the target's record shows. */
const OBSERVABLE: Readonly<Record<string, (effect: Effect) => string>> = {
  amount_minor: (effect) => String(effect.amount_minor),
  currency: (effect) => effect.currency,
  customer_id: (effect) => effect.destination,
  memo: (effect) => effect.reason ?? '(none)',
};

/** Every declared field that is not as approved, and our own reference. */
function differences(action: CreditAction, { run_id, fields }: ObserveBinding, effect: Effect): FieldDiff[] {
  const approved: JsonObject = action;
  const compared = fields.map((field): FieldDiff => {
    const observe = Object.hasOwn(OBSERVABLE, field) ? OBSERVABLE[field] : undefined;
    if (observe === undefined) throw new RangeError(`a credit's ${field} cannot be observed`);
    const value = approved[field];
    return { field, approved: typeof value === 'string' ? value : JSON.stringify(value), observed: observe(effect) };
  });
  compared.push({ field: 'run_id', approved: run_id, observed: effect.run_id ?? '(none)' });
  return compared.filter((diff) => diff.approved !== diff.observed);
}
