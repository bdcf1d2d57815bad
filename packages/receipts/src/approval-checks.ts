import { digestOf, evidenceSetDigest, parseStrictJson } from '@counterstamp/manifest-core';
import { absent, type Finding, failed, judge } from './finding.ts';
import { BoundApproval, type ReceiptPredicate } from './predicate.ts';
import { evidenceRounds, fixingEvent, folded, recordedBy } from './recorded.ts';

/** The action's bytes have its digest, and that is the one that the run's history fixed. */
export function actionFixed(predicate: ReceiptPredicate): Finding {
  const { action, events } = predicate;
  const stands = folded(events).action_revision ?? null;
  if (action === null)
    return stands === null
      ? absent('No action stood when the run stopped.')
      : failed(`Event ${JSON.stringify(stands)} fixed an action, and the receipt has none.`);
  const faults: string[] = [];
  if (digestOf('cs.action.v1', action.canonical) !== action.digest)
    faults.push(`The action's text does not have the digest ${action.digest}.`);
  if (stands !== action.action_revision)
    faults.push(
      `The action that stands is that of revision ${JSON.stringify(stands)}, not of ${action.action_revision}.`,
    );
  if (recordedBy(fixingEvent(predicate)).refs.action_digest !== action.digest)
    faults.push(`Event ${action.action_revision} did not fix the action ${action.digest}.`);
  return judge(faults, `The action has the digest ${action.digest}, which event ${action.action_revision} fixed.`);
}

/** What the approval request binds; undefined when its text is none. */
export function boundApproval({ approval }: ReceiptPredicate): BoundApproval | undefined {
  const json = parseStrictJson(approval?.canonical ?? '');
  return json.ok ? BoundApproval.safeParse(json.value).data : undefined;
}

/**
 * The approval request has its digest, the one that the history recorded with the action; and it binds this run, this action, the evidence
 * that the action was checked against, and what was displayed.
 */
export function approvalBinds(predicate: ReceiptPredicate): Finding {
  const { run, action, approval, events } = predicate;
  if (approval === null)
    return action === null
      ? absent('Nobody was asked to approve anything that stands.')
      : failed('The receipt has an action, and no approval request for it.');
  if (action === null) return failed('The receipt has an approval request, and no action that it is for.');
  const faults: string[] = [];
  if (digestOf('cs.approval.v1', approval.canonical) !== approval.approval_digest)
    faults.push(`The approval request's text does not have the digest ${approval.approval_digest}.`);
  if (recordedBy(fixingEvent(predicate)).refs.approval_digest !== approval.approval_digest)
    faults.push(`Event ${action.action_revision} did not ask for the approval ${approval.approval_digest}.`);
  const bound = boundApproval(predicate);
  if (bound === undefined) return failed(...faults, 'The approval request binds less than it must.');
  const round = evidenceRounds(events).findLast(({ revision }) => revision < action.action_revision);
  const expected: Partial<BoundApproval> = {
    run_id: run.run_id,
    tenant_id: run.tenant_id,
    ...(bound.workflow === undefined ? {} : { workflow: run.workflow, workflow_version: run.workflow_version }),
    connector: run.connector,
    connector_version: run.connector_version,
    action_digest: action.digest,
    action_revision: action.action_revision,
    evidence_set_digest: evidenceSetDigest(
      (round?.evidence ?? []).map(({ evidence_id, facts_digest }) => ({
        evidence_id: String(evidence_id),
        facts_digest: String(facts_digest),
      })),
    ),
    display_digest: digestOf('cs.display.v1', approval.display_canonical),
  };
  for (const [name, value] of Object.entries(expected))
    if (bound[name] !== value)
      faults.push(
        `The approval request binds the ${name} ${JSON.stringify(bound[name])}, not ${JSON.stringify(value)}.`,
      );
  return judge(
    faults,
    `Approval request ${bound.approval_id} binds this run, action, evidence and display, and expires at ${bound.expires_at}.`,
  );
}
