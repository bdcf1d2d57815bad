import type { AuthenticationResponse, RegistrationResponse } from '@counterstamp/api-contract';
import { escapeWord, keepText } from '@counterstamp/manifest-core';
import { verifyCredential } from '@counterstamp/signatures';
import type {
  PublicKeyCredentialCreationOptionsJSON,
  PublicKeyCredentialRequestOptionsJSON,
} from '@simplewebauthn/server';
import { rpIdOf, type SignIn } from './sign-in.ts';

// Loaded when first needed: with its certificate parsers the library is by far the heaviest import of the api.
const library = () => import('@simplewebauthn/server');

/** Loads what passkeys need, so that the first person who decides does not wait for it. */
export async function loadPasskeys(): Promise<void> {
  await library();
}

/** Shown by browsers beside the name of the person. */
const RP_NAME = 'Counterstamp';

/** What an authenticator is asked to do so that a new passkey is made. `challenge` and `exclude` are base64url. */
export async function creationOptions(
  signIn: Pick<SignIn, 'origin'>,
  who: { principal_id: string; name: string },
  challenge: string,
  exclude: readonly string[] = [],
): Promise<PublicKeyCredentialCreationOptionsJSON> {
  const { generateRegistrationOptions } = await library();
  return await generateRegistrationOptions({
    rpName: RP_NAME,
    rpID: rpIdOf(signIn),
    userName: who.name,
    userDisplayName: who.name,
    userID: new Uint8Array(Buffer.from(who.principal_id)),
    // Bytes: the library would encode a text again.
    challenge: bytesOf(challenge),
    attestationType: 'none',
    excludeCredentials: exclude.map((id) => ({ id })),
    // Discoverable, so that nobody types a name to sign in; and always with PIN or biometrics, since it stands for a person.
    authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
  });
}

/** What an authenticator is asked to sign. `allow`: the passkeys that may; any of this installation when empty. */
export async function requestOptions(
  signIn: Pick<SignIn, 'origin'>,
  challenge: string,
  allow: readonly string[] = [],
): Promise<PublicKeyCredentialRequestOptionsJSON> {
  const { generateAuthenticationOptions } = await library();
  return await generateAuthenticationOptions({
    rpID: rpIdOf(signIn),
    challenge: bytesOf(challenge),
    userVerification: 'required',
    ...(allow.length === 0 ? {} : { allowCredentials: allow.map((id) => ({ id })) }),
  });
}

/** `challenge` is what was signed; that it was asked for, and only once, is the database's to say. */
export type Registered =
  | {
      ok: true;
      challenge: string;
      passkey: { credential_id: string; public_key: string; transports: string[]; backed_up: boolean };
    }
  | { ok: false; detail: string };

/** Checks the answer to `creationOptions`, all but its challenge. */
export async function verifyRegistration(
  signIn: Pick<SignIn, 'origin'>,
  response: RegistrationResponse,
): Promise<Registered> {
  const { verifyRegistrationResponse } = await library();
  let challenge = '';
  try {
    const { response: attested, ...credential } = response;
    const { verified, registrationInfo } = await verifyRegistrationResponse({
      response: {
        ...credential,
        response: { clientDataJSON: attested.clientDataJSON, attestationObject: attested.attestationObject },
        clientExtensionResults: {},
      },
      expectedChallenge: (signed) => {
        challenge = signed;
        return true;
      },
      expectedOrigin: signIn.origin,
      expectedRPID: rpIdOf(signIn),
      requireUserVerification: true,
    });
    if (!verified) return { ok: false, detail: 'the attestation does not verify' };
    const { credential: made, credentialBackedUp } = registrationInfo;
    return {
      ok: true,
      challenge,
      passkey: {
        credential_id: made.id,
        public_key: Buffer.from(made.publicKey).toString('base64url'),
        transports: attested.transports ?? [],
        backed_up: credentialBackedUp,
      },
    };
  } catch (error) {
    return { ok: false, detail: sentenceOf(error) };
  }
}

export type Asserted = { ok: true; challenge: string } | { ok: false; detail: string };

/**
 * Checks the answer to `requestOptions`, all but its challenge, with the public key that the installation certified for this person.
 * A key that only the database vouches for opens nothing.
 */
export async function verifyAssertion(
  signIn: Pick<SignIn, 'origin' | 'keys'>,
  response: AuthenticationResponse,
  passkey: { tenant_id: string; principal_id: string; certificate: unknown },
): Promise<Asserted> {
  const certified = verifyCredential(passkey.certificate, signIn.keys);
  if (!certified.ok) return { ok: false, detail: `the passkey's certificate does not hold: ${certified.fault}` };
  const { record } = certified;
  const { tenant_id, principal_id } = passkey;
  const rpID = rpIdOf(signIn);
  if (
    record.credential_id !== response.id ||
    record.tenant_id !== tenant_id ||
    record.principal_id !== principal_id ||
    record.rp_id !== rpID
  ) {
    return { ok: false, detail: "the passkey's certificate is for something else" };
  }
  const { userHandle, ...signed } = response.response;
  if (userHandle !== undefined && Buffer.from(userHandle, 'base64url').toString() !== principal_id) {
    return { ok: false, detail: "the passkey says it is another person's" };
  }
  const { verifyAuthenticationResponse } = await library();
  let challenge = '';
  try {
    const { verified } = await verifyAuthenticationResponse({
      response: { ...response, response: signed, clientExtensionResults: {} },
      expectedChallenge: (asked) => {
        challenge = asked;
        return true;
      },
      expectedOrigin: signIn.origin,
      expectedRPID: rpID,
      requireUserVerification: true,
      // The single-use challenge refuses a replay; synced passkeys have no counter that could.
      credential: { id: record.credential_id, publicKey: bytesOf(record.public_key), counter: 0 },
    });
    return verified ? { ok: true, challenge } : { ok: false, detail: 'the signature does not verify' };
  } catch (error) {
    return { ok: false, detail: sentenceOf(error) };
  }
}

function bytesOf(base64url: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(base64url, 'base64url'));
}

/** UTF-16 units of a detail: the library quotes what the client sent. */
const DETAIL_MAX = 200;

function sentenceOf(error: unknown): string {
  return keepText(error instanceof Error ? error.message : String(error), DETAIL_MAX, escapeWord);
}
