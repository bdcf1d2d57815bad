import { affirmativeDecisions, approvalsSuffice, type Decision, type Manifest } from '@counterstamp/manifest-core';
import { type DecisionFault, type DecisionTrust, verifySignedDecision } from '@counterstamp/signatures';

/** What the executor holds against the database: nobody who can only write there can make these. */
export interface ApprovalTrust {
  /** Undefined in development without keys: then no signed decision counts. */
  signatures: DecisionTrust | undefined;
  /** COUNTERSTAMP_DEV: whether decisions by development keys count. */
  development: boolean;
}

export type ApprovalFault = DecisionFault | 'assertion_missing' | 'keys_missing';

/** A recorded approval that is not what an approver signed. */
export interface ForgedDecision {
  decision_id: string;
  fault: ApprovalFault;
  detail: string;
}

export interface VerifiedDecisions {
  /** Ids of the decisions that may count; the database asks again who made them. */
  verified: string[];
  forged: ForgedDecision[];
  /** Whether those alone satisfy the rule. */
  suffices: boolean;
}

/**
 * Checks every approval that would count against what its approver signed, from the stored bytes and with the keys of this process's
 * configuration. A decision that was not signed counts where the request asks for no signature.
 */
export async function verifyDecisions(manifest: Manifest, trust: ApprovalTrust): Promise<VerifiedDecisions> {
  const { approval } = manifest;
  const result: VerifiedDecisions = { verified: [], forged: [], suffices: false };
  if (approval === null) return result;
  for (const decision of affirmativeDecisions(approval, manifest.requested_by)) {
    const { decision_id, method } = decision;
    if (method === 'dev_key' && !trust.development) continue;
    // The policy of today is compared with what the request binds; what it binds decides here, whatever the database makes of it.
    if (method === 'session' && approval.method !== 'session') continue;
    const fault = method === 'passkey' ? await signatureFault(manifest, approval, decision, trust) : undefined;
    if (fault === undefined) result.verified.push(decision_id);
    else result.forged.push({ decision_id, ...fault });
  }
  const decisions = approval.decisions.filter((decision) => result.verified.includes(decision.decision_id));
  return { ...result, suffices: approvalsSuffice({ ...approval, decisions }, manifest.requested_by).suffices };
}

async function signatureFault(
  { tenant_id }: Manifest,
  approval: NonNullable<Manifest['approval']>,
  decision: Decision,
  trust: ApprovalTrust,
): Promise<Omit<ForgedDecision, 'decision_id'> | undefined> {
  if (decision.assertion === null) return { fault: 'assertion_missing', detail: 'nothing signed is stored with it' };
  if (trust.signatures === undefined)
    return { fault: 'keys_missing', detail: 'this executor has no COUNTERSTAMP_TRUSTED_KEYS to judge it by' };
  const { certificate, ...signed } = decision.assertion;
  const verdict = await verifySignedDecision(
    signed,
    certificate,
    {
      approval_id: approval.approval_id,
      decision: decision.break_glass ? 'break_glass' : decision.decision,
      approver: decision.principal_id,
      tenant_id,
      approval_digest: approval.approval_digest,
      decided_at: decision.decided_at,
      reason: decision.reason,
    },
    trust.signatures,
  );
  return verdict.ok ? undefined : { fault: verdict.fault, detail: verdict.detail };
}
