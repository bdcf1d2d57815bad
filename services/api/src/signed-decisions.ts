import type { DecideBody } from '@counterstamp/api-contract';
import type { DecisionCommit } from '@counterstamp/manifest-store';
import { type DecisionFault, decisionChallengeText, verifySignedDecision } from '@counterstamp/signatures';
import type { Call } from './command.ts';
import { type Refused, refused } from './problem.ts';
import type { SignIn } from './sign-in.ts';

export type Verified =
  | { ok: true; assertion: NonNullable<DecisionCommit['assertion']> }
  | { ok: false; refused: Refused };

/** Faults of a signature over something else: another challenge is the way on. Every other fault is of the signature itself. */
const OF_THE_CHALLENGE: readonly DecisionFault[] = [
  'pre_image_malformed',
  'pre_image_differs',
  'reason_differs',
  'decided_outside_window',
  'challenge_differs',
];

/** Checks a signed decision as the executor will check it again, before anything of it is recorded. */
export async function verifiedAssertion(
  { deps, who }: Pick<Call, 'deps' | 'who'>,
  signIn: SignIn,
  body: DecideBody,
  { pre_image, response }: NonNullable<DecideBody['assertion']>,
): Promise<Verified> {
  const passkey = await deps.identities.passkeyFor(response.id);
  if (passkey?.principal_id !== who.principal_id || passkey.tenant_id !== who.tenant_id) {
    return { ok: false, refused: refused('credential_revoked', '/assertion/response/id') };
  }
  const { clientDataJSON, authenticatorData, signature } = response.response;
  const signed = {
    credential_id: response.id,
    pre_image,
    client_data_json: clientDataJSON,
    authenticator_data: authenticatorData,
    signature,
  };
  const expected = {
    approval_id: body.approval_id,
    decision: body.break_glass === true ? ('break_glass' as const) : body.decision,
    approver: who.principal_id,
    tenant_id: who.tenant_id,
    approval_digest: body.approval_digest,
    decided_at: passkey.as_of,
    reason: body.reason ?? null,
  };
  const verdict = await verifySignedDecision(signed, passkey.certificate, expected, signIn);
  if (!verdict.ok) {
    const code = OF_THE_CHALLENGE.includes(verdict.fault) ? 'challenge_invalid' : 'assertion_invalid';
    const path = verdict.fault === 'reason_differs' ? '/reason' : '/assertion';
    return { ok: false, refused: refused(code, path, { detail: `${verdict.fault}: ${verdict.detail}` }) };
  }
  return { ok: true, assertion: { ...signed, challenge: decisionChallengeText(pre_image) } };
}
