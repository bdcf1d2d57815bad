import {
  generateAuthenticationOptions,
  generateRegistrationOptions,
  type RegistrationResponseJSON,
  verifyAuthenticationResponse,
  verifyRegistrationResponse,
} from '@simplewebauthn/server';
import { expect, test } from 'vitest';
import { createSoftwareAuthenticator } from './software-authenticator.ts';

const ORIGIN = 'http://localhost:8080';
const RP_ID = 'localhost';

async function enrolled() {
  const authenticator = createSoftwareAuthenticator({ origin: ORIGIN });
  const options = await generateRegistrationOptions({ rpName: 'Counterstamp', rpID: RP_ID, userName: 'Rosa' });
  const response = await authenticator.register(options);
  return { authenticator, options, response };
}

function verifiedRegistration(response: RegistrationResponseJSON, challenge: string) {
  return verifyRegistrationResponse({
    response,
    expectedChallenge: challenge,
    expectedOrigin: ORIGIN,
    expectedRPID: RP_ID,
    requireUserVerification: true,
  });
}

test('its registration and its assertions are accepted by the WebAuthn library', async () => {
  const { authenticator, options, response } = await enrolled();
  const { verified, registrationInfo } = await verifiedRegistration(response, options.challenge);
  expect(verified).toBe(true);
  expect(registrationInfo).toMatchObject({ fmt: 'none', userVerified: true, credential: { id: response.id } });

  const request = await generateAuthenticationOptions({ rpID: RP_ID, allowCredentials: [{ id: response.id }] });
  const credential = registrationInfo?.credential;
  if (credential === undefined) throw new Error('the registration gave no credential');
  const assertion = await verifyAuthenticationResponse({
    response: await authenticator.authenticate(request),
    expectedChallenge: request.challenge,
    expectedOrigin: ORIGIN,
    expectedRPID: RP_ID,
    credential,
  });
  expect(assertion).toMatchObject({ verified: true, authenticationInfo: { userVerified: true, newCounter: 0 } });
});

test.each([
  ['another origin', { origin: 'http://localhost:9999' }, /origin/],
  ['no user verification', { userVerified: false }, /User verification/],
  ['another ceremony', { type: 'webauthn.get' }, /type/],
])('its registration with %s is refused by the WebAuthn library', async (_, misbehaviour, message) => {
  const { authenticator, options } = await enrolled();
  const response = await authenticator.register(options, misbehaviour);
  await expect(verifiedRegistration(response, options.challenge)).rejects.toThrow(message);
});

test('it signs with the passkey that is asked for, and with none that it does not hold', async () => {
  const { authenticator, options, response } = await enrolled();
  const second = await authenticator.register(options);
  const ask = (id: string) =>
    authenticator.authenticate({
      challenge: options.challenge,
      rpId: RP_ID,
      allowCredentials: [{ id, type: 'public-key' }],
    });
  expect((await ask(second.id)).id).toBe(second.id);
  expect((await ask(response.id)).id).toBe(response.id);
  await expect(ask('AAAA')).rejects.toThrow(RangeError);
});

test('it makes the same passkey again from the same random bytes', async () => {
  const random = (length: number) => Buffer.alloc(length, 7);
  const { options } = await enrolled();
  const register = () => createSoftwareAuthenticator({ origin: ORIGIN, random }).register(options);
  expect(await register()).toEqual(await register());
});
