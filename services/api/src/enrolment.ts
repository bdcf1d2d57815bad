import {
  type CreationOptions,
  EnrolmentBody,
  EnrolmentOptionsBody,
  type RegistrationResponse,
  type SessionView,
} from '@counterstamp/api-contract';
import { hashSecret, type NewPasskey, type PrincipalRef } from '@counterstamp/manifest-store';
import { certifyCredential } from '@counterstamp/signatures';
import { type Answer, answered, type OpenCall } from './command.ts';
import { creationOptions, verifyRegistration } from './passkey-ceremonies.ts';
import { type Refused, refused } from './problem.ts';
import { readBody } from './raw-body.ts';
import { openedSession, prepareSession } from './sessions.ts';
import { randomText, rpIdOf, type SignIn } from './sign-in.ts';

/** How long a browser may take to make a passkey or to sign with one, in milliseconds: people look for their key. */
export const CEREMONY_LIFE_MS = 5 * 60_000;

/** What the authenticator of an invited person is asked. The link is not used up by looking. */
export async function enrolmentOptions({ deps, signIn, request }: OpenCall): Promise<Answer<CreationOptions>> {
  const body = await readBody(request, EnrolmentOptionsBody);
  if (!body.ok) return body.refused;
  const invited = await deps.identities.invitationFor(hashSecret(body.value.invitation));
  if (invited === undefined) return refused('invitation_invalid', '/invitation');

  const challenge = randomText(signIn);
  const expires_at = await deps.identities.beginChallenge(invited, {
    purpose: 'enrol',
    challenge,
    subject: { invitation_id: invited.invitation_id },
    life_ms: CEREMONY_LIFE_MS,
  });
  const options = await creationOptions(signIn, invited, challenge);
  return answered({ name: invited.name, options: { ...options }, expires_at });
}

/** Uses an invitation up: the passkey is certified, recorded, and its person signed in, all or nothing. */
export async function enrol({ deps, signIn, request }: OpenCall): Promise<Answer<SessionView>> {
  const body = await readBody(request, EnrolmentBody);
  if (!body.ok) return body.refused;
  const { invitation, name, response } = body.value;
  const token_hash = hashSecret(invitation);
  const invited = await deps.identities.invitationFor(token_hash);
  if (invited === undefined) return refused('invitation_invalid', '/invitation');

  const made = await certifiedPasskey(signIn, invited, name, response);
  if (!made.ok) return made.refused;
  const session = prepareSession(signIn, deps.ids);
  const by = { token_hash, opened: session.opened };
  const result = await deps.identities.enrolPasskey(invited, by, made.challenge, made.passkey);
  return result === 'enrolled' ? await openedSession(deps, session) : refused(result, '', { audited: true });
}

export type CertifiedPasskey = { ok: true; challenge: string; passkey: NewPasskey } | { ok: false; refused: Refused };

/**
 * A passkey that a browser made, with the installation's certificate that it is this person's.
 * @param who `as_of`: the database's clock, for the certificate.
 */
export async function certifiedPasskey(
  signIn: SignIn,
  { tenant_id, principal_id, as_of }: PrincipalRef & { as_of: string },
  name: string,
  response: RegistrationResponse,
): Promise<CertifiedPasskey> {
  const registered = await verifyRegistration(signIn, response);
  if (!registered.ok) {
    return { ok: false, refused: refused('assertion_invalid', '/response', { detail: registered.detail }) };
  }
  const { credential_id, public_key } = registered.passkey;
  const certificate = certifyCredential(
    {
      profile: 'cs.credential.v1',
      ...{ credential_id, principal_id, tenant_id, public_key },
      rp_id: rpIdOf(signIn),
      certified_at: as_of,
    },
    signIn.key,
  );
  return {
    ok: true,
    challenge: registered.challenge,
    passkey: { ...registered.passkey, name, certificate: { ...certificate } },
  };
}
