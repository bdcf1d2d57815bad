import {
  type Attempt,
  type Digest,
  type DisplayField,
  ExternalId,
  escapeWord,
  type HttpReply,
  type HttpRequest,
  type JsonObject,
  keepText,
  type OneShot,
  type SendResult,
  type Settlement,
} from '@counterstamp/manifest-core';
import { z } from 'zod';

/** What the target promises about repeated sends. After the retention the same key executes AGAIN. */
export type IdempotencyContract =
  | { kind: 'none' }
  | { kind: 'natural'; field: string; onDuplicate: 'rejects' | 'returns-existing' }
  | {
      kind: 'key';
      retentionMs: number;
      safetyMarginMs: number;
      scope: readonly ('account' | 'endpoint' | 'region' | 'credential' | 'mode')[];
      replays: 'stored-response' | 'current-state';
      storesServerErrors: boolean;
      compares: 'all-params' | 'undocumented';
      inFlight: 'conflict-error' | 'may-fail';
      keyMaxLength: number;
    };

/**
 * How long a repeated send with the same key and bytes is safe after the first, in milliseconds; `null`: never (protocol rule 18: a key with
 * retention and a check of the body).
 */
export function keyRetentionMs({ idempotency }: ConnectorContract): number | null {
  if (idempotency.kind !== 'key' || idempotency.compares !== 'all-params') return null;
  return idempotency.retentionMs - idempotency.safetyMarginMs;
}

/** What a look-up of the business record proves. */
export interface LookupContract {
  consistency: { kind: 'strong' } | { kind: 'eventual'; settleMs: number };
  /** `attributes-only` never proves identity. */
  correlation: 'tag' | 'natural-id' | 'attributes-only';
  /** Whether an empty answer covers everything that could exist. */
  complete: boolean;
}

/** A currency's exponent at the target, and the granularity that an amount must be a multiple of, in minor units. */
export interface CurrencyTable {
  [currency: string]: { exponent: number; granularity: number };
}

/** Refuses at input what the wire cannot carry exactly; `undefined` when it can. */
export function checkMoney(
  amounts: CurrencyTable,
  amountMinor: number,
  currency: string,
): 'currency_unsupported' | 'amount_not_representable' | undefined {
  const known = Object.hasOwn(amounts, currency) ? amounts[currency] : undefined;
  if (known === undefined) return 'currency_unsupported';
  return amountMinor % known.granularity === 0 ? undefined : 'amount_not_representable';
}

export interface ConnectorContract {
  name: string;
  version: string;
  idempotency: IdempotencyContract;
  lookup: LookupContract;
  settlement: 'sync' | 'async';
  /** How long after it became final a status may still turn, in milliseconds; a completed run is looked at again meanwhile. 0: final is final. */
  reversalHorizonMs: number;
  /** How long after the last byte left may the target still apply it? Absence is conclusive only afterwards. */
  inFlightHorizonMs: number;
  amounts: CurrencyTable;
}

/** An effect as the target's own record shows it; amounts in ISO minor units. */
export type Effect = {
  provider_ref: string;
  amount_minor: number;
  currency: string;
  destination: string;
  status: string;
  reason: string | null;
  settlement: Settlement;
  /** Our tag, when the record carries one. */
  run_id: string | null;
  /** Digest of the action, where the record carries that as well. */
  action_digest?: string;
};

export type { Settlement } from '@counterstamp/manifest-core';

/** What one physical send came to. A connector classifies; the executor decides. */
export type Outcome =
  | { class: 'applied'; effect: Effect; replayed: boolean | 'unknown' }
  | { class: 'rejected'; code: string; retryable: 'never' | 'new-approval' }
  | { class: 'not_sent'; reason: string }
  | { class: 'retry_safe'; reason: string; afterMs?: number }
  | { class: 'uncertain'; reason: string };

/** A field in which the effect is not what was approved. */
export type FieldDiff = {
  field: string;
  approved: string;
  observed: string;
};

/** What a read of the business record shows, by another code path than the reply. */
export type Observation =
  | { kind: 'found'; match: 'exact'; effect: Effect }
  | { kind: 'found'; match: 'different'; effect: Effect; differing: FieldDiff[] }
  | { kind: 'found'; match: 'multiple' | 'lookalike'; effects: Effect[] }
  | { kind: 'absent'; strength: 'strong' | 'eventual' }
  | { kind: 'unknown'; reason: string };

/** The exact request of an effect; the same bytes for every attempt. */
export interface Prepared {
  request: HttpRequest;
  bytes: Uint8Array;
}

/** One record of an external system with its provenance. */
export interface SourceRecord {
  kind: string;
  source_ref: string;
  version_marker: string | null;
  facts: JsonObject;
}
export type ReadOutcome =
  | { kind: 'found'; record: SourceRecord }
  | { kind: 'missing'; source_ref: string }
  | { kind: 'failed'; reason: string };
/** A read operation of an external system: safe to repeat. */
export type Read = (args: JsonObject) => Promise<ReadOutcome>;

/** Whose effect is looked for, and which members of the action it must equal. */
export interface ObserveBinding {
  run_id: string;
  action_digest: Digest;
  attempts: readonly Attempt[];
  /** @throws {RangeError} from `observe` for a field that the connector cannot observe: it must never count as equal. */
  fields: readonly string[];
}

export interface Connector {
  contract: ConnectorContract;
  /** Read operations by name; the dispatcher permits them one by one. */
  reads: Readonly<Record<string, Read>>;
  /** Deterministic, from the canonical action alone; no model text decides here. */
  display(action: JsonObject): DisplayField[];
  /** Pure: nothing that varies per attempt enters the bytes. */
  prepare(action: JsonObject, bind: { run_id: string; action_digest: Digest; idempotency_key: string }): Prepared;
  /** At most one physical send, through the connection that the runtime opened. */
  execute(prepared: Prepared, transport: OneShot): Promise<Outcome>;
  /** Own read-only credential. Never takes a lookalike for ours. */
  observe(action: JsonObject, bind: ObserveBinding): Promise<Observation>;
}

/** A word that names something or decides: an id, a code. Short and printable ASCII, or it is not understood and nothing is concluded from it. */
export const Word = z.string().regex(/^[\x20-\x7e]{1,128}$/);

/** Units kept of a word that is only compared, and of a text that people wrote: what one screen shows, so that one record cannot fill a page of a history. */
const WORD_MAX = 128;
const TEXT_MAX = 2_000;

/**
 * A word that is compared and never acted on by itself: a status, a currency. A strange one is no reason to know nothing of its record: it is
 * kept, printable and short (`escapeWord`, `keepText`), and equals none that we know.
 */
export const SaidWord = z.string().transform((word) => keepText(word, WORD_MAX, escapeWord));

/** Words of a person at an external system, such as a reason: kept, with a visible escape for what no record can hold. */
export const SaidText = z.string().transform((text) => keepText(text, TEXT_MAX));

/** An id as one segment of a path: it can neither leave its place nor name another resource. */
export function segment(value: unknown): string {
  return encodeURIComponent(ExternalId.parse(value));
}

const Coded = z.looseObject({ code: z.string() });

/** Whether the system itself says that there is no such record. A gateway's 404, or that of a wrong base URL, says nothing about one. */
export function saysMissing(reply: HttpReply, code: string): boolean {
  return reply.status === 404 && Coded.safeParse(jsonOf(reply)).data?.code === code;
}

/** Text of a reply, or undefined when it is not UTF-8 JSON. */
export function jsonOf(reply: HttpReply): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(reply.body));
  } catch {
    return undefined;
  }
}

/** A send that has no reply, in the runtime's words: uncertain unless no byte left. */
export function withoutReply(result: Exclude<SendResult, HttpReply>): Outcome {
  return result.kind === 'not_sent'
    ? { class: 'not_sent', reason: result.reason }
    : { class: 'uncertain', reason: result.reason };
}
