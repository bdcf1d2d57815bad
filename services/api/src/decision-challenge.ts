import { type DecisionChallenge, DecisionChallengeBody } from '@counterstamp/api-contract';
import type { Approval } from '@counterstamp/manifest-core';
import type { PasskeySummary, PrincipalRole } from '@counterstamp/manifest-store';
import { decisionChallengeText, decisionPreImage, reasonDigest } from '@counterstamp/signatures';
import { recordedOf } from './approval-card.ts';
import { type Answer, answered, runIdOf, type SessionCall } from './command.ts';
import { requestOptions } from './passkey-ceremonies.ts';
import { refused } from './problem.ts';
import { readBody } from './raw-body.ts';
import { randomText } from './sign-in.ts';

/** How long a person may take over the signature, in milliseconds; never beyond the approval's expiry. */
const DECISION_CHALLENGE_LIFE_MS = 5 * 60_000;

/** The role without which a decision could not count; a rejection is open to every approver. */
const ROLE_NEEDED = { approve: 'approver', reject: 'approver', break_glass: 'break_glass' } as const satisfies Record<
  string,
  PrincipalRole
>;

/**
 * What the person's passkey is to sign: one canonical text about exactly this decision, whose digest is the challenge. Judged here only so
 * far that nobody signs in vain; the decision itself is judged when it comes.
 */
export async function decisionChallenge(call: SessionCall): Promise<Answer<DecisionChallenge>> {
  const { deps, signIn, who } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const body = await readBody(call.request, DecisionChallengeBody);
  if (!body.ok) return body.refused;
  const { decision, reason } = body.value;
  if (!who.roles.includes(ROLE_NEEDED[decision])) return refused('not_an_approver', '/decision');

  const loaded = await deps.store.load(who.tenant_id, id.run_id);
  if (loaded === undefined) return refused('run_not_found');
  const { approval, state } = loaded.manifest;
  // What stands now is not what was shown: an earlier approval of the run is void, and any other was never its own.
  if (approval === null || !isAsShown(approval, body.value)) return refused('digest_mismatch');
  if (state === 'expired') return refused('approval_expired');
  if (state !== 'awaiting_approval')
    return refused(approval.decisions.length > 0 ? 'already_decided' : 'not_awaiting_approval', '', {
      decisions: approval.decisions.map(recordedOf),
    });
  if (decision === 'break_glass' && !approval.break_glass) return refused('break_glass_not_allowed', '/decision');
  const passkey = chosen(await deps.identities.listPasskeys(who), body.value.credential_id);
  if (passkey === undefined) return refused('credential_revoked', '/credential_id');

  const pre_image = decisionPreImage({
    profile: 'cs.decision.v1',
    approval_id: approval.approval_id,
    decision,
    approver: who.principal_id,
    credential: passkey.credential_id,
    approval_digest: approval.approval_digest,
    nonce: randomText(signIn),
    issued_at: loaded.now,
    expires_at: earlier(new Date(loaded.nowMs + DECISION_CHALLENGE_LIFE_MS).toISOString(), approval.expires_at),
    reason_digest: reason === undefined ? null : reasonDigest(reason),
  });
  const challenge = decisionChallengeText(pre_image);
  const expires_at = await deps.identities.beginChallenge(who, {
    purpose: 'decide',
    challenge,
    subject: { approval_id: approval.approval_id, pre_image },
    life_ms: DECISION_CHALLENGE_LIFE_MS,
  });
  const options = await requestOptions(signIn, challenge, [passkey.credential_id]);
  return answered({ pre_image, challenge, options: { ...options }, expires_at });
}

function isAsShown(
  approval: Approval,
  shown: Pick<DecisionChallengeBody, 'approval_id' | 'approval_digest' | 'action_digest' | 'action_revision'>,
): boolean {
  return (
    approval.approval_id === shown.approval_id &&
    approval.approval_digest === shown.approval_digest &&
    approval.action_digest === shown.action_digest &&
    approval.action_revision === shown.action_revision
  );
}

/** The passkey that was named; else the one used last, which is the one at hand. */
function chosen(passkeys: readonly PasskeySummary[], credential_id: string | undefined): PasskeySummary | undefined {
  const living = passkeys.filter((passkey) => passkey.revoked_at === null);
  if (credential_id !== undefined) return living.find((passkey) => passkey.credential_id === credential_id);
  const usedAt = (passkey: PasskeySummary) => passkey.last_used_at ?? passkey.created_at;
  return living.reduce<PasskeySummary | undefined>(
    (latest, one) => (latest === undefined || usedAt(one) > usedAt(latest) ? one : latest),
    undefined,
  );
}

function earlier(left: string, right: string): string {
  return Date.parse(left) < Date.parse(right) ? left : right;
}
