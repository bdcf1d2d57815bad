import {
  AddPasskeyBody,
  type CreationOptions,
  EmptyBody,
  PasskeyParameters,
  type Passkeys,
} from '@counterstamp/api-contract';
import { parseWith } from '@counterstamp/manifest-core';
import { type Answer, answered, type SessionCall } from './command.ts';
import { CEREMONY_LIFE_MS, certifiedPasskey } from './enrolment.ts';
import { creationOptions } from './passkey-ceremonies.ts';
import { refused, refusedBy } from './problem.ts';
import { readBody } from './raw-body.ts';
import { isFresh } from './sessions.ts';
import { randomText } from './sign-in.ts';

export async function listPasskeys({ deps, who }: SessionCall): Promise<Answer<Passkeys>> {
  return answered({ passkeys: await deps.identities.listPasskeys(who) });
}

export async function passkeyOptions({ deps, signIn, who, request }: SessionCall): Promise<Answer<CreationOptions>> {
  if (!isFresh(who.session)) return refused('step_up_required');
  const body = await readBody(request, EmptyBody, {});
  if (!body.ok) return body.refused;
  const known = await deps.identities.listPasskeys(who);
  const challenge = randomText(signIn);
  const expires_at = await deps.identities.beginChallenge(who, {
    purpose: 'enrol',
    challenge,
    subject: { session_id: who.session.session_id },
    life_ms: CEREMONY_LIFE_MS,
  });
  const { principal_id, session } = who;
  const exclude = known.map(({ credential_id }) => credential_id);
  const options = await creationOptions(signIn, { principal_id, name: session.name }, challenge, exclude);
  return answered({ name: session.name, options: { ...options }, expires_at });
}

/** Another passkey of the signed-in person: without a fresh proof, whoever found an open browser could make themselves at home. */
export async function addPasskey(call: SessionCall): Promise<Answer<Passkeys>> {
  const { deps, signIn, who } = call;
  if (!isFresh(who.session)) return refused('step_up_required');
  const body = await readBody(call.request, AddPasskeyBody);
  if (!body.ok) return body.refused;
  const made = await certifiedPasskey(signIn, who.session, body.value.name, body.value.response);
  if (!made.ok) return made.refused;
  const by = { session_id: who.session.session_id };
  const result = await deps.identities.enrolPasskey(who, by, made.challenge, made.passkey);
  if (result !== 'enrolled') return refused(result, '', { audited: true });
  return answered({ passkeys: await deps.identities.listPasskeys(who) }, 201);
}

export async function revokePasskey(call: SessionCall): Promise<Answer<Passkeys>> {
  const { deps, who } = call;
  if (!isFresh(who.session)) return refused('step_up_required');
  const path = parseWith(PasskeyParameters, call.parameters);
  if (!path.ok) return refusedBy(path.refusal);
  const result = await deps.identities.revokePasskey(who, who.session.session_id, path.value.credential_id);
  if (result !== 'revoked') return refused(result, '/credential_id', { audited: true });
  return answered({ passkeys: await deps.identities.listPasskeys(who) });
}
