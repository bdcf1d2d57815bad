import {
  EmptyBody,
  type EndedSession,
  PasskeyAnswerBody,
  type RequestOptions,
  type SessionView,
} from '@counterstamp/api-contract';
import { type Answer, answered, type OpenCall, type SessionCall } from './command.ts';
import { CEREMONY_LIFE_MS } from './enrolment.ts';
import { requestOptions, verifyAssertion } from './passkey-ceremonies.ts';
import { refused } from './problem.ts';
import { readBody } from './raw-body.ts';
import { endedCookie } from './session-cookie.ts';
import { openedSession, prepareSession, sessionView } from './sessions.ts';
import { randomText } from './sign-in.ts';

/** What any passkey of this installation may answer: it says itself whose it is. */
export async function signInOptions({ deps, signIn, request }: OpenCall): Promise<Answer<RequestOptions>> {
  const body = await readBody(request, EmptyBody);
  if (!body.ok) return body.refused;
  const challenge = randomText(signIn);
  const expires_at = await deps.identities.beginChallenge(null, {
    purpose: 'sign_in',
    challenge,
    subject: {},
    life_ms: CEREMONY_LIFE_MS,
  });
  return answered({ options: { ...(await requestOptions(signIn, challenge)) }, expires_at });
}

/** Signs the person of a passkey in. An unknown passkey and a revoked one get the same answer. */
export async function signInByPasskey({ deps, signIn, request }: OpenCall): Promise<Answer<SessionView>> {
  const body = await readBody(request, PasskeyAnswerBody);
  if (!body.ok) return body.refused;
  const { response } = body.value;
  const passkey = await deps.identities.passkeyFor(response.id);
  if (passkey === undefined) return refused('credential_revoked', '/response/id');
  const asserted = await verifyAssertion(signIn, response, passkey);
  if (!asserted.ok) return refused('assertion_invalid', '/response', { detail: asserted.detail });

  const session = prepareSession(signIn, deps.ids);
  const by = { method: 'passkey', credential_id: response.id, challenge: asserted.challenge } as const;
  const opened = await deps.identities.openSession(passkey, by, session.opened);
  return opened ? await openedSession(deps, session) : refused('challenge_invalid', '/response');
}

export async function readSession({ who }: SessionCall): Promise<Answer<SessionView>> {
  return answered(sessionView(who.session, who.csrf_token));
}

export async function signOut({ deps, signIn, who }: SessionCall): Promise<Answer<EndedSession>> {
  await deps.identities.closeSession(who, who.session.session_id);
  return answered({ ended: true }, 200, { 'set-cookie': endedCookie(signIn.origin) });
}

export async function stepUpOptions({ deps, signIn, who, request }: SessionCall): Promise<Answer<RequestOptions>> {
  const body = await readBody(request, EmptyBody, {});
  if (!body.ok) return body.refused;
  const challenge = randomText(signIn);
  const expires_at = await deps.identities.beginChallenge(who, {
    purpose: 'step_up',
    challenge,
    subject: { session_id: who.session.session_id },
    life_ms: CEREMONY_LIFE_MS,
  });
  return answered({ options: { ...(await requestOptions(signIn, challenge)) }, expires_at });
}

/** The person of the session proves again who they are; whoever else holds the browser cannot. */
export async function stepUp(call: SessionCall): Promise<Answer<SessionView>> {
  const { deps, signIn, who } = call;
  const body = await readBody(call.request, PasskeyAnswerBody);
  if (!body.ok) return body.refused;
  const { response } = body.value;
  const passkey = await deps.identities.passkeyFor(response.id);
  if (passkey?.principal_id !== who.principal_id) return refused('credential_revoked', '/response/id');
  const asserted = await verifyAssertion(signIn, response, passkey);
  if (!asserted.ok) return refused('assertion_invalid', '/response', { detail: asserted.detail });

  const by = { credential_id: response.id, challenge: asserted.challenge };
  const stepped = await deps.identities.stepUp(who, who.session.session_id, by);
  if (!stepped) return refused('challenge_invalid', '/response');
  // The passkey's answer was judged by the clock of `passkeyFor`; the database's own is a moment later, and so on the safe side.
  return answered(
    sessionView({ ...who.session, authenticated_at: passkey.as_of, authenticated_age_ms: 0 }, who.csrf_token),
  );
}
