import { digestOf } from './digest.ts';
import { type Durations, EXPIRY_MARGIN_MS } from './durations.ts';
import { type Approval, type Decision, epochMs, type Manifest } from './manifest.ts';

/** Holders who may stand in for the rule together: nobody breaks the glass alone. */
export const BREAK_GLASS_PEOPLE = 2;

/** One condition of a dispatch, as `run show` prints it. */
export interface GuardResult {
  guard: string;
  pass: boolean;
  detail: string;
}

/** Approvals of exactly this action that count now: of each person one of each kind at most. Any rejection makes it none. */
export function affirmativeDecisions(approval: Approval, requestedBy: string): Decision[] {
  if (approval.decisions.some((decision) => decision.decision === 'reject')) return [];
  const byPerson = new Map<string, Decision>();
  for (const decision of approval.decisions) {
    const matches =
      decision.action_digest === approval.action_digest && decision.action_revision === approval.action_revision;
    if (matches && decision.obstacle === null && decision.principal_id !== requestedBy)
      byPerson.set(`${decision.break_glass} ${decision.principal_id}`, decision);
  }
  return [...byPerson.values()];
}

/**
 * Whether the decisions satisfy the rule that asked for them: enough distinct people and enough members of each group, or two holders of the
 * broken glass where the rule permits it. The database judges the same under the row lock (`cs.approvals_suffice`).
 */
export function approvalsSuffice(
  approval: Approval,
  requestedBy: string,
): { suffices: boolean; detail: string; counted: number } {
  const affirmative = affirmativeDecisions(approval, requestedBy);
  const ordinary = affirmative.filter((decision) => !decision.break_glass);
  const missing = Object.entries(approval.groups_required)
    .map(([group, needed]) => ({ group, needed, n: ordinary.filter((one) => one.groups.includes(group)).length }))
    .filter(({ needed, n }) => n < needed);
  const broken = approval.break_glass && affirmative.length - ordinary.length >= BREAK_GLASS_PEOPLE;
  return {
    suffices: broken || (ordinary.length >= approval.approvals_required && missing.length === 0),
    counted: affirmative.length,
    detail: [
      `${ordinary.length} of ${approval.approvals_required} approvals`,
      ...missing.map(({ group, needed, n }) => `${n} of ${needed} from ${group}`),
      ...(broken ? ['the glass was broken'] : []),
    ].join('; '),
  };
}

/**
 * Every condition of a dispatch that the manifest alone can answer, in the order of protocol rule 5c. The executor uses it as the
 * early check; `cs.commit_dispatch` checks the same again under the row lock. Facts outside the row (hold, held resource,
 * fresh preconditions) are the dispatch commit's.
 * @param nowMs the database's clock, milliseconds since the epoch.
 */
export function dispatchGuards(
  manifest: Manifest,
  nowMs: number,
  durations: Pick<Durations, 'epsilon_ms'>,
): GuardResult[] {
  const { action, approval } = manifest;
  const guards: GuardResult[] = [];
  const check = (guard: string, pass: boolean, detail: string) => guards.push({ guard, pass, detail });

  const retry = manifest.state === 'needs_reconciliation' && manifest.retry_allowed;
  check('state', manifest.state === 'awaiting_approval' || retry, `the run is ${manifest.state}`);
  check(
    'action_fixed',
    action !== null && manifest.action_revision !== null,
    action === null ? 'no action yet' : action.digest,
  );
  if (action === null || approval === null) {
    check('approval_asked', false, 'no approval was asked for yet');
    return guards;
  }
  const { operation } = action.fields;
  const allowed = typeof operation === 'string' && manifest.allowed_operations.includes(operation);
  check(
    'operation_allowed',
    allowed,
    `${JSON.stringify(operation)} ${allowed ? 'is' : 'is not'} among the run's allowed operations`,
  );
  const storedDigest = digestOf('cs.action.v1', action.canonical);
  check(
    'digest_matches',
    storedDigest === approval.action_digest && action.digest === approval.action_digest,
    storedDigest === approval.action_digest
      ? 'stored bytes are the approved bytes'
      : `stored bytes are ${storedDigest}, approved were ${approval.action_digest}`,
  );
  check(
    'revision_matches',
    approval.action_revision === manifest.action_revision,
    `approval is for the action of revision ${approval.action_revision}`,
  );
  const { suffices, detail } = approvalsSuffice(approval, manifest.requested_by);
  check('decisions_sufficient', suffices, detail);
  const leftMs = epochMs(approval.expires_at) - nowMs;
  check(
    'approval_unexpired',
    leftMs > durations.epsilon_ms + EXPIRY_MARGIN_MS,
    leftMs > 0 ? `expires in ${Math.floor(leftMs / 1000)} s` : `expired ${Math.floor(-leftMs / 1000)} s ago`,
  );
  check('run_deadline', epochMs(manifest.deadlines.run) > nowMs, `the run's deadline is ${manifest.deadlines.run}`);
  return guards;
}

/** Whether a refused proposal may be followed by another. */
export function cyclesRemain(manifest: Pick<Manifest, 'counters'>, proposalCyclesMax: number): boolean {
  return manifest.counters.proposal_cycles + 1 < proposalCyclesMax;
}
