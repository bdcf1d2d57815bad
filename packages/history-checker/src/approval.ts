import { BREAK_GLASS_PEOPLE, type Digest, digestOf, idempotencyKey } from '@counterstamp/manifest-core';
import type { Finding } from './checks.ts';
import { type ApprovalRecord, approvalOf, microseconds, payloadOf, type RunHistory, recordIn } from './history.ts';
import type { LedgerRequest } from './ledger.ts';

/**
 * H5: what arrived is what was stored with the attempt, and that is what was approved. The stored action has the approved digest, each attempt
 * names that digest and the key derived from it, all attempts of one action carry the same bytes, and every body at the provider has the digest
 * of the attempt's bytes.
 * @param requests the run's part of the ledger; null without one.
 */
export function approvedBytes(history: RunHistory, requests: readonly LedgerRequest[] | null): Finding<'H5'>[] {
  const found: ReturnType<typeof approvedBytes> = [];
  const { run, actions, attempts } = history;
  for (const attempt of attempts) {
    const approval = approvalOf(history, attempt);
    if (approval === undefined) continue; // H6 names it.
    const action = actions.find((one) => one.action_revision === approval.action_revision);
    const digests = {
      'the stored text': action === undefined ? 'missing' : digestOf('cs.action.v1', action.canonical),
      'the action': action?.digest ?? 'missing',
      [`attempt ${attempt.n}`]: attempt.action_digest,
    };
    for (const [whose, digest] of Object.entries(digests))
      if (digest !== approval.action_digest)
        found.push({
          code: 'action_differs',
          message: `approved was ${approval.action_digest}, the digest of ${whose} is ${digest}`,
        });
    const key = idempotencyKey(run.run_id, approval.action_revision, approval.action_digest);
    if (attempt.idempotency_key !== key)
      found.push({
        code: 'key_differs',
        message: `attempt ${attempt.n} has the key ${attempt.idempotency_key}, that of its action is ${key}`,
      });
    const first = attempts.find((one) => approvalOf(history, one) === approval);
    if (first !== undefined && attempt.request_digest !== first.request_digest)
      found.push({
        code: 'bytes_differ',
        message: `attempt ${attempt.n} has the bytes ${attempt.request_digest}, attempt ${first.n} had ${first.request_digest}`,
      });
  }
  if (attempts.length === 0) return found; // H4 names requests without an attempt.
  for (const { seq, body_digest, idempotency_key } of requests ?? []) {
    if (body_digest !== null && !attempts.some((attempt) => attempt.request_digest === (body_digest as Digest)))
      found.push({
        code: 'body_differs',
        message: `request ${seq} arrived with the body ${body_digest}, which no attempt stored`,
      });
    if (idempotency_key !== null && !attempts.some((attempt) => attempt.idempotency_key === idempotency_key))
      found.push({
        code: 'key_differs',
        message: `request ${seq} arrived with the key ${idempotency_key}, which no attempt has`,
      });
  }
  return found;
}

/**
 * H6: at every dispatch stood an approval request that is what its digest says, unexpired, with enough affirmative decisions by people other
 * than the requester, made before it, and none against; and the call may not outlast the approval.
 */
export function approvedAtDispatch(history: RunHistory): Finding<'H6'>[] {
  const found: ReturnType<typeof approvedAtDispatch> = [];
  for (const attempt of history.attempts) {
    const approval = approvalOf(history, attempt);
    if (approval === undefined) {
      found.push({ code: 'no_approval', message: `nothing was asked before attempt ${attempt.n}` });
      continue;
    }
    const { approval_id } = approval;
    for (const what of boundFaults(history, approval))
      found.push({ code: 'approval_changed', message: `approval ${approval_id}: ${what}` });
    const expires = microseconds(approval.expires_at);
    if (expires <= microseconds(attempt.started_at))
      found.push({
        code: 'approval_expired',
        message: `attempt ${attempt.n} started at ${attempt.started_at}, the approval expired at ${approval.expires_at}`,
      });
    else if (microseconds(attempt.call_deadline) > expires)
      found.push({
        code: 'approval_expired',
        message: `attempt ${attempt.n} may call until ${attempt.call_deadline}, the approval expires at ${approval.expires_at}`,
      });
    const decisions = approval.decisions.filter((decision) => decision.revision < attempt.revision);
    const against = decisions.find((decision) => decision.decision === 'reject');
    if (against !== undefined)
      found.push({ code: 'rejected', message: `${against.principal_id} rejected before attempt ${attempt.n}` });
    const counting = decisions.filter(
      (decision) =>
        decision.decision === 'approve' &&
        decision.action_digest === approval.action_digest &&
        decision.action_revision === approval.action_revision &&
        decision.principal_id !== history.run.requested_by &&
        microseconds(decision.decided_at) <= microseconds(attempt.started_at) &&
        decidedOn(history, decision.revision) === approval.approval_digest,
    );
    const people = new Set(counting.filter((one) => !one.break_glass).map((one) => one.principal_id));
    const breakers = new Set(counting.filter((one) => one.break_glass).map((one) => one.principal_id));
    const broken = recordIn(approval.canonical).break_glass === true && breakers.size >= BREAK_GLASS_PEOPLE;
    const needed = Math.max(1, approval.approvals_required);
    if (people.size < needed && !broken)
      found.push({
        code: 'decisions_insufficient',
        message: `${people.size} of ${needed} approvals stood at attempt ${attempt.n}`,
      });
  }
  return found;
}

/** The approval digest that a decision's event names: what the person was shown. */
function decidedOn({ events }: RunHistory, revision: number): unknown {
  const event = events.find((one) => one.revision === revision);
  return event === undefined ? undefined : payloadOf(event).refs.approval_digest;
}

/** Where an approval request is not what its digest covers. */
function boundFaults({ run }: RunHistory, approval: ApprovalRecord): string[] {
  if (digestOf('cs.approval.v1', approval.canonical) !== approval.approval_digest)
    return ['its text does not have its digest'];
  const bound = recordIn(approval.canonical);
  const expected: Record<string, unknown> = {
    approval_id: approval.approval_id,
    run_id: run.run_id,
    action_digest: approval.action_digest,
    action_revision: approval.action_revision,
    approvals_required: approval.approvals_required,
  };
  const faults = Object.entries(expected)
    .filter(([name, value]) => bound[name] !== value)
    .map(([name, value]) => `${name} is ${JSON.stringify(value)}, bound was ${JSON.stringify(bound[name])}`);
  const { expires_at } = bound;
  if (typeof expires_at !== 'string' || microseconds(expires_at) !== microseconds(approval.expires_at))
    faults.push(`expires_at is ${approval.expires_at}, bound was ${JSON.stringify(expires_at)}`);
  return faults;
}
