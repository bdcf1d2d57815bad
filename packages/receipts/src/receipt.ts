import { canonicalJson, escapeWord, parseStrictJson } from '@counterstamp/manifest-core';
import {
  type DecisionTrust,
  Envelope,
  openEnvelope,
  type SigningKey,
  sealEnvelope,
  type TrustedKeys,
} from '@counterstamp/signatures';
import type { z } from 'zod';
import { actionFixed, approvalBinds } from './approval-checks.ts';
import { attemptsMatch } from './attempt-check.ts';
import { checkpointCovers } from './checkpoint-check.ts';
import { approvalsSufficient, decisionSignatures, decisionsRecorded } from './decision-checks.ts';
import { evidenceMatches } from './evidence-check.ts';
import { type Finding, failed, judge } from './finding.ts';
import { eventChain, legalMoves, runState } from './history-checks.ts';
import { outcomeMatches } from './outcome-check.ts';
import {
  RECEIPT_PAYLOAD_TYPE,
  RECEIPT_PREDICATE_TYPE,
  ReceiptPredicate,
  ReceiptStatement,
  STATEMENT_TYPE,
  subjectOf,
} from './predicate.ts';

/** Every check of a receipt, in the order in which they are made and reported. Without a readable statement only the first two are. */
export const RECEIPT_CHECKS = [
  'envelope_signature',
  'statement',
  'subject',
  'event_chain',
  'legal_moves',
  'run_state',
  'action',
  'evidence',
  'approval',
  'decisions',
  'decision_signatures',
  'approvals_sufficient',
  'attempts',
  'outcome',
  'checkpoint',
] as const;
export type ReceiptCheck = (typeof RECEIPT_CHECKS)[number];

export interface ReceiptVerification {
  checks: ({ check: ReceiptCheck } & Finding)[];
  /** No check failed. What is absent fails nothing, and is said. */
  ok: boolean;
}

/**
 * Signs what is recorded of a run as an in-toto statement in a DSSE envelope.
 * @throws {z.ZodError} for a predicate that `verifyReceipt` could not read: a fault of the caller.
 */
export function makeReceipt(predicate: z.input<typeof ReceiptPredicate>, key: SigningKey): Envelope {
  const parsed = ReceiptPredicate.parse(predicate);
  const statement = ReceiptStatement.parse({
    _type: STATEMENT_TYPE,
    subject: [subjectOf(parsed)],
    predicateType: RECEIPT_PREDICATE_TYPE,
    predicate: parsed,
  });
  return sealEnvelope(RECEIPT_PAYLOAD_TYPE, canonicalJson(statement), key);
}

/**
 * Verifies a receipt from its bytes and trusted public keys alone, going on after a failed check as far as there is something to look at.
 *
 * What it cannot show: that the people who approved were entitled to (the installation checks that at the dispatch); and that no events were
 * cut off the end together with a rewritten head, beyond the revision that a checkpoint covers.
 * @param keys keys for the purposes `receipt`, `credential` and `checkpoint`, from out of band: never from the receipt's sender.
 * @param trust origin of the console at which people decided.
 */
export async function verifyReceipt(
  envelope: unknown,
  keys: TrustedKeys,
  trust: Pick<DecisionTrust, 'origin'>,
): Promise<ReceiptVerification> {
  const checks: ReceiptVerification['checks'] = [];
  // Whatever is quoted from the receipt stays printable: a report must not be able to rewrite the terminal that shows it.
  const report = (check: ReceiptCheck, { ok, sentence }: Finding) =>
    checks.push({ check, ok, sentence: escapeWord(sentence) });

  const opened = openEnvelope(envelope, RECEIPT_PAYLOAD_TYPE, keys, 'receipt');
  report(
    'envelope_signature',
    opened.ok
      ? judge([], `The receipt is signed by the trusted key ${opened.key_id}.`)
      : failed(`The receipt is not signed by a key that is trusted for receipts: ${opened.fault}.`),
  );
  const statement = readStatement(opened.ok ? opened.payload : unsignedPayload(envelope));
  if (statement.value === undefined) {
    report('statement', failed(`The envelope holds no receipt that can be read: ${statement.fault}.`));
    return { checks, ok: false };
  }
  report('statement', judge([], 'The envelope holds a receipt of this version.'));

  const { predicate } = statement.value;
  const decisionTrust: DecisionTrust = { keys, origin: trust.origin };
  report('subject', subjectNames(statement.value));
  report('event_chain', eventChain(predicate));
  report('legal_moves', legalMoves(predicate));
  report('run_state', runState(predicate));
  report('action', actionFixed(predicate));
  report('evidence', evidenceMatches(predicate));
  report('approval', approvalBinds(predicate));
  const recorded = decisionsRecorded(predicate);
  report('decisions', recorded.finding);
  const signed = await decisionSignatures(predicate, decisionTrust);
  report('decision_signatures', signed.finding);
  report('approvals_sufficient', approvalsSufficient(predicate, recorded.passed, signed.passed));
  report('attempts', attemptsMatch(predicate));
  report('outcome', outcomeMatches(predicate));
  report('checkpoint', checkpointCovers(predicate, keys));
  return { checks, ok: checks.every(({ ok }) => ok !== false) };
}

type Statement = z.infer<typeof ReceiptStatement>;

function readStatement(payload: string): { value: Statement } | { value: undefined; fault: string } {
  const json = parseStrictJson(payload);
  if (!json.ok) return { value: undefined, fault: `${json.refusal.code} at ${json.refusal.path}` };
  const parsed = ReceiptStatement.safeParse(json.value);
  return parsed.success
    ? { value: parsed.data }
    : { value: undefined, fault: `${parsed.error.issues[0]?.message} at ${parsed.error.issues[0]?.path.join('/')}` };
}

/** What an envelope holds whose signature does not: still worth a look, to say what else is wrong. */
function unsignedPayload(envelope: unknown): string {
  const { data } = Envelope.safeParse(envelope);
  return data === undefined ? '' : Buffer.from(data.payload, 'base64').toString('utf8');
}

function subjectNames({ subject: [subject], predicate }: Statement): Finding {
  const expected = subjectOf(predicate);
  const faults: string[] = [];
  if (subject.name !== expected.name) faults.push(`The statement is about ${subject.name}, not ${expected.name}.`);
  if (subject.digest.sha256 !== expected.digest.sha256)
    faults.push(`The statement is about the digest ${subject.digest.sha256}, not ${expected.digest.sha256}.`);
  return judge(faults, `The statement is about ${expected.name} and ${expected.digest.sha256}.`);
}
