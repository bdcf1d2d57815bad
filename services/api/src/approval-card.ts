import type { ApprovalCard, RecordedDecision, UntrustedText, WHY_NOT } from '@counterstamp/api-contract';
import {
  type Approval,
  approvalsSuffice,
  canonicalJson,
  type Decision,
  digestOf,
  displayText,
  epochMs,
  type JsonObject,
  type JsonValue,
  type LoadedRun,
  type Manifest,
  parseStrictJson,
} from '@counterstamp/manifest-core';
import { z } from 'zod';
import type { Caller } from './caller.ts';

/** What of the approval's own text the card shows or rests on. Members that older requests lack have the values that the database reads for them. */
const Bound = z.object({
  approval_id: z.string(),
  run_id: z.string(),
  tenant_id: z.string(),
  action_digest: z.string(),
  action_revision: z.int(),
  display_digest: z.string(),
  policy: z.string(),
  policy_version: z.int(),
  policy_rule: z.string(),
  approvals_required: z.int(),
  groups_required: z.record(z.string(), z.int()).default({}),
  method: z.string().default('session'),
  break_glass: z.boolean().default(false),
  expires_at: z.iso.datetime(),
});

/** What the caller's standing rests on beside the run. */
export interface CardReader {
  who: Pick<Caller, 'via' | 'roles' | 'principal_id'>;
  /** Why the caller may not approve this run, by `cs.approver_obstacle`; null: nothing stands against it. */
  obstacle: string | null;
  development: boolean;
}

export type CardOutcome =
  | { kind: 'card'; card: ApprovalCard }
  | { kind: 'not_asked' }
  /** `member`: the first thing that is not what the approval binds. */
  | { kind: 'not_bound'; member: string };

/** The card of the approval that a run asked for last, or why there is none. Pure. */
export function approvalCard({ manifest, now, nowMs }: LoadedRun, reader: CardReader): CardOutcome {
  const { approval, action } = manifest;
  if (approval === null) return { kind: 'not_asked' };
  const member = unboundMember(manifest, approval);
  if (member !== undefined) return { kind: 'not_bound', member };
  const { suffices, detail } = approvalsSuffice(approval, manifest.requested_by);
  const why_not = whyNot(manifest, approval, nowMs, reader);
  const { policy, policy_version, policy_rule, approvals_required, groups_required, method, break_glass } = approval;
  return {
    kind: 'card',
    card: {
      run_id: manifest.run_id,
      tenant_id: manifest.tenant_id,
      state: manifest.state,
      revision: manifest.revision,
      as_of: now,
      approval_id: approval.approval_id,
      approval_digest: approval.approval_digest,
      action_digest: approval.action_digest,
      action_revision: approval.action_revision,
      expires_at: approval.expires_at,
      facts: approval.display,
      flagged: approval.display.some((fact) => fact.flagged),
      rule: { policy, policy_version, policy_rule, approvals_required, groups_required, method, break_glass },
      decisions: approval.decisions.map((one) => ({
        ...recordedOf(one),
        reason: one.reason === null ? null : displayText(one.reason).value,
        obstacle: one.obstacle,
      })),
      standing: { suffices, detail },
      mine: { may_decide: why_not === null, why_not },
      untrusted: untrustedTexts(manifest, action?.fields ?? {}),
    },
  };
}

/** What everybody who may read the run is told of a decision. */
export function recordedOf({
  decision_id,
  decision,
  principal_id,
  method,
  decided_at,
  reason,
  break_glass,
}: Decision): RecordedDecision {
  return { decision_id, decision, principal_id, method, decided_at, reason, break_glass };
}

/**
 * The first thing that the card would show and the approval's text does not bind; `undefined`: there is none. What is shown and what is
 * decided are then the same, whoever wrote to the tables; that it is also what the workflow makes of the action, the executor checks.
 */
function unboundMember(manifest: Manifest, approval: Approval): string | undefined {
  if (digestOf('cs.approval.v1', approval.canonical) !== approval.approval_digest) return 'approval_digest';
  const text = parseStrictJson(approval.canonical);
  const bound = Bound.safeParse(text.ok ? text.value : undefined);
  if (!bound.success) return 'approval';
  const { expires_at, ...rest } = bound.data;
  const members: JsonObject = rest;
  if (epochMs(expires_at) !== epochMs(approval.expires_at)) return 'expires_at';
  const { action } = manifest;
  if (action === null || action.digest !== approval.action_digest) return 'action';
  const shown: typeof rest = {
    approval_id: approval.approval_id,
    run_id: manifest.run_id,
    tenant_id: manifest.tenant_id,
    action_digest: digestOf('cs.action.v1', action.canonical),
    action_revision: approval.action_revision,
    display_digest: digestOf('cs.display.v1', canonicalJson(approval.display)),
    policy: approval.policy,
    policy_version: approval.policy_version,
    policy_rule: approval.policy_rule,
    approvals_required: approval.approvals_required,
    groups_required: approval.groups_required,
    method: approval.method,
    break_glass: approval.break_glass,
  };
  return Object.entries(shown).find(
    ([name, value]) => canonicalJson(value) !== canonicalJson(members[name] ?? null),
  )?.[0];
}

/** What would refuse the caller's approval, in the order in which it is judged when it comes (`cs.commit_decision`). */
function whyNot(
  manifest: Manifest,
  approval: Approval,
  nowMs: number,
  { who, obstacle, development }: CardReader,
): (typeof WHY_NOT)[number] | null {
  if (!who.roles.includes('approver')) return 'not_an_approver';
  if (who.via === 'key' && !development) return 'approvals_need_development';
  if (obstacle !== null && obstacle !== 'self_approval') return 'not_an_approver';
  if (approval.decisions.some((one) => one.principal_id === who.principal_id)) return 'already_decided';
  if (manifest.state === 'expired') return 'approval_expired';
  if (manifest.state !== 'awaiting_approval')
    return approval.decisions.length > 0 ? 'already_decided' : 'not_awaiting_approval';
  if (nowMs >= epochMs(approval.expires_at)) return 'approval_expired';
  if (obstacle === 'self_approval') return 'self_approval';
  return manifest.decisions_sufficient ? 'already_decided' : null;
}

/** Everything that somebody wrote beside the facts: the request, the proposal that became the action, the context. */
function untrustedTexts(manifest: Manifest, action: JsonObject): UntrustedText[] {
  const proposal = manifest.proposals.findLast((one) => one.refusal === null);
  return [
    ...textsOf('request', manifest.requested_by, manifest.input, action),
    ...(proposal === undefined ? [] : textsOf('proposal', proposal.author, proposal.body, action)),
    ...manifest.context.map(({ source, text }) => untrusted('context', source, null, text)),
  ];
}

/** The members that hold text. What the action has under the same name and with the same value is among the facts. */
function textsOf(label: 'request' | 'proposal', source: string, body: JsonValue, action: JsonObject): UntrustedText[] {
  if (body === null || typeof body !== 'object' || Array.isArray(body)) return [];
  return Object.entries(body).flatMap(([member, value]) => {
    const isFact = Object.hasOwn(action, member) && canonicalJson(action[member] ?? null) === canonicalJson(value);
    if (isFact || value === null || typeof value === 'number' || typeof value === 'boolean') return [];
    return [untrusted(label, source, member, typeof value === 'string' ? value : canonicalJson(value))];
  });
}

function untrusted(label: UntrustedText['label'], source: string, member: string | null, text: string): UntrustedText {
  const { value, flagged } = displayText(text);
  return { label, source, member, text: value, flagged };
}
