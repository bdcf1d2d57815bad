import { BREAK_GLASS_PEOPLE } from '@counterstamp/manifest-core';
import { type DecisionTrust, verifySignedDecision } from '@counterstamp/signatures';
import { boundApproval } from './approval-checks.ts';
import { absent, counted, type Finding, failed, judge } from './finding.ts';
import type { BoundApproval, ReceiptDecision, ReceiptPredicate } from './predicate.ts';
import { dispatches, recordedBy } from './recorded.ts';

/** A check of decisions, and the decisions that passed it, by id. */
export interface DecisionsFinding {
  finding: Finding;
  passed: ReadonlySet<string>;
}

/** Each decision is what one event recorded, on this very approval request; and each recorded one is here. */
export function decisionsRecorded({ action, approval, decisions, events }: ReceiptPredicate): DecisionsFinding {
  const since = action?.action_revision ?? Number.POSITIVE_INFINITY;
  const recorded = events.filter((event) => event.revision > since && recordedBy(event).refs.decision_id !== undefined);
  const faults: string[] = [];
  const passed = new Set<string>();
  for (const decision of decisions) {
    const event = recorded.find((one) => one.revision === decision.revision);
    const { refs } = recordedBy(event);
    if (
      event?.trigger === (decision.decision === 'reject' ? 'approval_rejected' : 'decision_recorded') &&
      event.actor === `principal/${decision.principal_id}` &&
      event.at === decision.decided_at &&
      refs.decision_id === decision.decision_id &&
      refs.approval_digest === approval?.approval_digest &&
      (refs.break_glass ?? false) === decision.break_glass
    )
      passed.add(decision.decision_id);
    else faults.push(`Decision ${decision.decision_id} is not what event ${decision.revision} recorded.`);
  }
  for (const event of recorded)
    if (!decisions.some((decision) => decision.revision === event.revision))
      faults.push(`The decision that event ${event.revision} recorded is missing.`);
  return {
    finding:
      decisions.length === 0 && faults.length === 0
        ? absent('Nobody decided about the action.')
        : judge(
            faults,
            `${counted(decisions.length, 'decision')}: each is in the history, and none of the history's is missing.`,
          ),
    passed,
  };
}

/**
 * Each passkey signature holds for exactly this decision. What another method decided is said to be unsigned: for that the receipt's signer
 * vouches alone.
 */
export async function decisionSignatures(predicate: ReceiptPredicate, trust: DecisionTrust): Promise<DecisionsFinding> {
  const { decisions } = predicate;
  const bound = boundApproval(predicate);
  const faults: string[] = [];
  const passed = new Set<string>();
  for (const decision of decisions) {
    if (decision.method !== 'passkey' && decision.signed === null) continue;
    const fault = await signatureFault(predicate, decision, bound, trust);
    if (fault === undefined) passed.add(decision.decision_id);
    else faults.push(`The signature of decision ${decision.decision_id} does not hold: ${fault}.`);
  }
  const unsigned = decisions
    .filter((decision) => decision.method !== 'passkey')
    .map(
      (decision) => `Decision ${decision.decision_id} of ${decision.principal_id} is not signed (${decision.method}).`,
    );
  const held = passed.size === 0 ? [] : [`${counted(passed.size, 'passkey signature')} verified.`];
  const sentence = [...faults, ...held, ...unsigned].join(' ');
  if (faults.length > 0) return { finding: { ok: false, sentence }, passed };
  if (decisions.length === 0) return { finding: absent('There is no decision to be signed.'), passed };
  return { finding: { ok: unsigned.length === 0 ? true : 'absent', sentence }, passed };
}

async function signatureFault(
  { run, approval }: ReceiptPredicate,
  decision: ReceiptDecision,
  bound: BoundApproval | undefined,
  trust: DecisionTrust,
): Promise<string | undefined> {
  if (decision.method !== 'passkey') return `it was made by ${decision.method}, which signs nothing`;
  if (decision.signed === null) return 'there is none';
  if (approval === null || bound === undefined) return 'there is no approval request that it could be for';
  const { reason } = decision;
  const verdict = await verifySignedDecision(
    decision.signed,
    decision.certificate,
    {
      approval_id: bound.approval_id,
      decision: decision.break_glass ? 'break_glass' : decision.decision,
      approver: decision.principal_id,
      tenant_id: run.tenant_id,
      approval_digest: approval.approval_digest,
      decided_at: decision.decided_at,
      reason: typeof reason === 'string' ? undefined : (reason?.text ?? null),
    },
    trust,
  );
  return verdict.ok ? undefined : `${verdict.fault} (${verdict.detail})`;
}

/**
 * Before the first dispatch enough distinct people other than the requester had approved, in the way that the approval request asks for, and
 * nobody had rejected. That they belonged to the groups that it asks for, and were entitled, is the installation's word: nothing here shows it.
 */
export function approvalsSufficient(
  predicate: ReceiptPredicate,
  recorded: ReadonlySet<string>,
  signed: ReadonlySet<string>,
): Finding {
  const { run, decisions } = predicate;
  const [first] = dispatches(predicate);
  if (first === undefined) return absent('Nothing was dispatched, so no approval was needed.');
  const bound = boundApproval(predicate);
  if (bound === undefined) return failed('Something was dispatched, and no approval request says who had to approve.');

  const before = decisions.filter((decision) => decision.revision < first.revision);
  const approvers = (counts: (decision: ReceiptDecision) => boolean) => [
    ...new Set(
      before
        .filter(
          (decision) =>
            decision.decision === 'approve' &&
            decision.principal_id !== run.requested_by &&
            decision.principal_id !== run.on_behalf_of &&
            recorded.has(decision.decision_id) &&
            counts(decision),
        )
        .map((decision) => decision.principal_id),
    ),
  ];
  const people = approvers(
    ({ break_glass, decision_id, method }) =>
      !break_glass && (signed.has(decision_id) || (method !== 'passkey' && bound.method !== 'passkey')),
  );
  const breakers = approvers(
    ({ break_glass, decision_id }) => break_glass && bound.break_glass && signed.has(decision_id),
  );
  const faults: string[] = [];
  const against = before.find((decision) => decision.decision === 'reject');
  if (against !== undefined) faults.push(`${against.principal_id} had rejected before the first dispatch.`);
  const enough = people.length >= bound.approvals_required;
  const broken = breakers.length >= BREAK_GLASS_PEOPLE;
  if (!enough && !broken) {
    const how = bound.method === 'passkey' ? ', each signed by passkey,' : '';
    faults.push(
      `${people.length} of ${counted(bound.approvals_required, 'approval')}${how} by people other than the requester stood before the first dispatch.`,
    );
  }
  const groups = Object.entries(bound.groups_required).map(([group, count]) => `${count} of ${group}`);
  const unseen = groups.length === 0 ? '' : ` That ${groups.join(' and ')} were among them is the installation's word.`;
  return judge(
    faults,
    broken
      ? `BREAK GLASS: ${breakers.join(', ')} stood in for the rule, which asked for ${counted(bound.approvals_required, 'approval')}.`
      : `${people.join(', ')} approved before the first dispatch; ${counted(bound.approvals_required, 'approval')} needed.${unseen}`,
  );
}
