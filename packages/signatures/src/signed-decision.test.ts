import { canonicalJson, digestOf } from '@counterstamp/manifest-core';
import { generateRegistrationOptions, verifyRegistrationResponse } from '@simplewebauthn/server';
import { describe, expect, test } from 'vitest';
import { type CredentialRecord, certifyCredential } from './credential.ts';
import { type DecisionPreImage, decisionChallengeText, decisionPreImage, reasonDigest } from './decision-pre-image.ts';
import type { Envelope } from './envelope.ts';
import { generateSigningKey, parseSigningKey, parseTrustedKeys, publicJwk, trustedKeysText } from './keys.ts';
import {
  DECISION_FAULTS,
  type DecisionFault,
  type ExpectedDecision,
  type SignedDecision,
  verifySignedDecision,
} from './signed-decision.ts';
import { createSoftwareAuthenticator, type Misbehaviour } from './software-authenticator.ts';

const ORIGIN = 'https://stamp.example:8443';
const RP_ID = 'stamp.example';
const KEY = parseSigningKey(generateSigningKey());
const RECEIPT_KEY = parseSigningKey(generateSigningKey());
const STRANGER = parseSigningKey(generateSigningKey());
const TRUST = {
  keys: parseTrustedKeys(trustedKeysText([publicJwk(KEY, ['credential']), publicJwk(RECEIPT_KEY, ['receipt'])])),
  origin: ORIGIN,
};
const REASON = 'the bank calls';
const OTHER_DIGEST = digestOf('cs.approval.v1', '{"amount_minor":9900}');

const authenticator = createSoftwareAuthenticator({ origin: ORIGIN });
const rosa = await enrol('prn_rosa');
const omar = await enrol('prn_omar');

const FIELDS: DecisionPreImage = {
  profile: 'cs.decision.v1',
  approval_id: 'apr_1',
  decision: 'approve',
  approver: rosa.principal_id,
  credential: rosa.credential_id,
  approval_digest: digestOf('cs.approval.v1', '{"amount_minor":4200}'),
  nonce: 'EBESExQVFhcYGRobHB0eHw',
  issued_at: '2026-11-30T12:00:00.000000Z',
  expires_at: '2026-11-30T12:05:00.000000Z',
  reason_digest: null,
};
const EXPECTED: ExpectedDecision = {
  approval_id: FIELDS.approval_id,
  decision: 'approve',
  approver: rosa.principal_id,
  tenant_id: rosa.tenant_id,
  approval_digest: FIELDS.approval_digest,
  decided_at: '2026-11-30T12:01:00.123456Z',
  reason: null,
};
const SIGNED = await signDecision(decisionPreImage(FIELDS));
const CERTIFICATE = certifyCredential(rosa, KEY);

/** A passkey of this person, as the enrolment certifies it. */
async function enrol(principalId: string): Promise<CredentialRecord> {
  const options = await generateRegistrationOptions({ rpName: 'Counterstamp', rpID: RP_ID, userName: principalId });
  const { registrationInfo } = await verifyRegistrationResponse({
    response: await authenticator.register(options),
    expectedChallenge: options.challenge,
    expectedOrigin: ORIGIN,
    expectedRPID: RP_ID,
  });
  if (registrationInfo === undefined) throw new Error('the registration was refused');
  return {
    profile: 'cs.credential.v1',
    credential_id: registrationInfo.credential.id,
    principal_id: principalId,
    tenant_id: 'acme',
    public_key: Buffer.from(registrationInfo.credential.publicKey).toString('base64url'),
    rp_id: RP_ID,
    certified_at: '2026-11-01T08:00:00.000000Z',
  };
}

async function signDecision(
  preImage: string,
  { as = rosa, rpId = RP_ID, ...misbehaviour }: Misbehaviour & { as?: CredentialRecord; rpId?: string } = {},
): Promise<SignedDecision> {
  const { response } = await authenticator.authenticate(
    {
      challenge: decisionChallengeText(preImage),
      rpId,
      allowCredentials: [{ id: as.credential_id, type: 'public-key' }],
    },
    misbehaviour,
  );
  return {
    credential_id: as.credential_id,
    pre_image: preImage,
    client_data_json: response.clientDataJSON,
    authenticator_data: response.authenticatorData,
    signature: response.signature,
  };
}

/** What a forger may change, one thing at a time; the rest is as it was honestly made. */
interface Change {
  signed?: Partial<SignedDecision>;
  certificate?: unknown;
  expected?: Partial<ExpectedDecision>;
  origin?: string;
}

function verdictOn({ signed, certificate = CERTIFICATE, expected, origin = ORIGIN }: Change) {
  return verifySignedDecision(
    { ...SIGNED, ...signed },
    certificate,
    { ...EXPECTED, ...expected },
    { ...TRUST, origin },
  );
}

/** A pre-image that was changed after it was signed. */
function movedPreImage(change: Partial<DecisionPreImage>): Change {
  return { signed: { pre_image: decisionPreImage({ ...FIELDS, ...change }) } };
}

/** The certificate of another record, by the installation's own key unless another signs. */
function certifiedAs(change: Partial<CredentialRecord>, key = KEY): Change {
  return { certificate: certifyCredential({ ...rosa, ...change }, key) };
}

/** A decision that broke the glass for `REASON`, and the reason that is stored with it. */
async function brokenGlass(reason: ExpectedDecision['reason']): Promise<Change> {
  const broken = { ...FIELDS, decision: 'break_glass' as const, reason_digest: reasonDigest(REASON) };
  return { signed: await signDecision(decisionPreImage(broken)), expected: { decision: 'break_glass', reason } };
}

function bitFlipped(base64url: string): string {
  const bytes = Buffer.from(base64url, 'base64url');
  const last = bytes.byteLength - 1;
  bytes[last] = (bytes[last] ?? 0) ^ 1;
  return bytes.toString('base64url');
}

describe('a signed decision', () => {
  test('holds as it was made, and gives back what was signed', async () => {
    expect(await verdictOn({})).toEqual({ ok: true, pre_image: FIELDS });
  });
  test('holds from the instant of its issue to the last microsecond before it expires', async () => {
    for (const decided_at of [FIELDS.issued_at, '2026-11-30T12:04:59.999999Z'])
      expect(await verdictOn({ expected: { decided_at } })).toMatchObject({ ok: true });
  });
  test('holds whatever the counter of its authenticator says', async () => {
    for (const counter of [1, 0, 4_294_967_295])
      expect(await verdictOn({ signed: await signDecision(SIGNED.pre_image, { counter }) })).toMatchObject({
        ok: true,
      });
  });
  test('of a broken glass holds with the reason that was signed, and where the reason is not disclosed', async () => {
    for (const reason of [REASON, undefined])
      expect(await verdictOn(await brokenGlass(reason))).toMatchObject({ ok: true });
  });
  test('that breaks no glass holds whatever reason is told beside it', async () => {
    for (const reason of [REASON, undefined])
      expect(await verdictOn({ expected: { reason } })).toMatchObject({ ok: true });
  });
});

type Row = [what: string, fault: DecisionFault, change: () => Change | Promise<Change>];
const SPEC: readonly Row[] = [
  [
    'a signature in no canonical base64url',
    'signed_decision_malformed',
    () => ({ signed: { signature: `${SIGNED.signature}=` } }),
  ],
  ['an empty client data', 'signed_decision_malformed', () => ({ signed: { client_data_json: '' } })],

  ['no certificate', 'certificate_invalid', () => ({ certificate: null })],
  ['a certificate by a key that nobody trusts', 'certificate_invalid', () => certifiedAs({}, STRANGER)],
  ['a certificate by a key for receipts only', 'certificate_invalid', () => certifiedAs({}, RECEIPT_KEY)],
  ['a certificate with one character changed', 'certificate_invalid', () => ({ certificate: damaged(CERTIFICATE) })],

  ["another person's certificate", 'certificate_differs', () => ({ certificate: certifyCredential(omar, KEY) })],
  [
    'a certificate of the same passkey for another person',
    'certificate_differs',
    () => certifiedAs({ principal_id: 'prn_omar' }),
  ],
  ['a certificate of another tenant', 'certificate_differs', () => certifiedAs({ tenant_id: 'umbrella' })],
  [
    'a certificate for the host of another installation',
    'certificate_differs',
    () => certifiedAs({ rp_id: 'stamp.other' }),
  ],
  ['a verifier that serves another host', 'certificate_differs', () => ({ origin: 'https://stamp.other:8443' })],
  ['another credential', 'certificate_differs', () => ({ signed: { credential_id: omar.credential_id } })],

  [
    'a pre-image in another order of members',
    'pre_image_malformed',
    () => ({ signed: { pre_image: JSON.stringify(FIELDS) } }),
  ],
  [
    'a pre-image with a member too many',
    'pre_image_malformed',
    () => ({ signed: { pre_image: canonicalJson({ ...FIELDS, more: 1 }) } }),
  ],
  ['a pre-image that is no JSON', 'pre_image_malformed', () => ({ signed: { pre_image: 'approve' } })],

  ['another approver in the pre-image', 'pre_image_differs', () => movedPreImage({ approver: 'prn_omar' })],
  ['another approval in the pre-image', 'pre_image_differs', () => movedPreImage({ approval_id: 'apr_2' })],
  ['the opposite decision in the pre-image', 'pre_image_differs', () => movedPreImage({ decision: 'reject' })],
  ['another credential in the pre-image', 'pre_image_differs', () => movedPreImage({ credential: omar.credential_id })],
  ['another digest in the pre-image', 'pre_image_differs', () => movedPreImage({ approval_digest: OTHER_DIGEST })],
  ['a stored approval that changed', 'pre_image_differs', () => ({ expected: { approval_digest: OTHER_DIGEST } })],
  ['a stored decision that was turned round', 'pre_image_differs', () => ({ expected: { decision: 'reject' } })],
  ['a vote that was moved to another approval', 'pre_image_differs', () => ({ expected: { approval_id: 'apr_2' } })],

  ['another reason than was signed with a broken glass', 'reason_differs', () => brokenGlass('the bank called')],
  ['an empty reason beside a broken glass', 'reason_differs', () => brokenGlass('')],
  ['a broken glass without its reason', 'reason_differs', () => brokenGlass(null)],

  [
    'a decision a microsecond before its issue',
    'decided_outside_window',
    () => ({ expected: { decided_at: '2026-11-30T11:59:59.999999Z' } }),
  ],
  [
    'a decision at the instant of its expiry',
    'decided_outside_window',
    () => ({ expected: { decided_at: FIELDS.expires_at } }),
  ],
  ['a decision at no instant', 'decided_outside_window', () => ({ expected: { decided_at: 'yesterday' } })],

  ['an expiry that was moved', 'challenge_differs', () => movedPreImage({ expires_at: '2027-11-30T12:05:00.000000Z' })],
  ['an issue that was moved', 'challenge_differs', () => movedPreImage({ issued_at: '2026-11-30T11:00:00.000000Z' })],
  ['another nonce', 'challenge_differs', () => movedPreImage({ nonce: 'AAAAAAAAAAAAAAAAAAAAAA' })],
  [
    'the assertion over another decision of the same passkey',
    'challenge_differs',
    async () => ({
      signed: {
        ...(await signDecision(decisionPreImage({ ...FIELDS, decision: 'reject' }))),
        pre_image: SIGNED.pre_image,
      },
    }),
  ],

  ['an assertion made on another site', 'origin_differs', () => signedWith({ origin: 'https://stamp.exarnple:8443' })],
  ['an assertion made on another port', 'origin_differs', () => signedWith({ origin: 'https://stamp.example' })],
  ['an assertion made inside a frame', 'origin_differs', () => signedWith({ crossOrigin: true })],
  ['an assertion without user verification', 'user_not_verified', () => signedWith({ userVerified: false })],

  ['an assertion of an enrolment', 'assertion_invalid', () => signedWith({ type: 'webauthn.create' })],
  ['an authenticator that signed for another host', 'assertion_invalid', () => signedWith({ rpId: 'stamp.other' })],
  [
    "another person's assertion",
    'assertion_invalid',
    async () => ({
      signed: { ...(await signDecision(SIGNED.pre_image, { as: omar })), credential_id: rosa.credential_id },
    }),
  ],
  ['a certificate with another public key', 'assertion_invalid', () => certifiedAs({ public_key: omar.public_key })],
  ['a certificate with a public key that is none', 'assertion_invalid', () => certifiedAs({ public_key: 'AAAA' })],
  [
    'one bit of the signature flipped',
    'assertion_invalid',
    () => ({ signed: { signature: bitFlipped(SIGNED.signature) } }),
  ],
  [
    'one bit of the authenticator data flipped',
    'assertion_invalid',
    () => ({
      signed: { authenticator_data: bitFlipped(SIGNED.authenticator_data) },
    }),
  ],
  [
    'client data of the same meaning in other bytes',
    'assertion_invalid',
    () => ({
      signed: { client_data_json: respaced(SIGNED.client_data_json) },
    }),
  ],
  ['client data that is no JSON', 'assertion_invalid', () => ({ signed: { client_data_json: 'AAAA' } })],
  ['authenticator data that is cut short', 'assertion_invalid', () => ({ signed: { authenticator_data: 'AAAA' } })],
];

async function signedWith(misbehaviour: Misbehaviour & { rpId?: string }): Promise<Change> {
  return { signed: await signDecision(SIGNED.pre_image, misbehaviour) };
}

function damaged(envelope: Envelope): Envelope {
  const text = Buffer.from(envelope.payload, 'base64').toString();
  return { ...envelope, payload: Buffer.from(text.replace('prn_rosa', 'prn_rosb')).toString('base64') };
}

function respaced(clientDataJson: string): string {
  const text = Buffer.from(clientDataJson, 'base64url').toString();
  return Buffer.from(`${text} `).toString('base64url');
}

describe('a decision is refused for', () => {
  test.each(SPEC)('%s: %s', async (_, fault, change) => {
    expect(await verdictOn(await change())).toMatchObject({ ok: false, fault });
  });
  test('every fault that has a code', () => {
    expect(new Set(SPEC.map(([, fault]) => fault))).toEqual(new Set(DECISION_FAULTS));
  });
});

test('a refusal quotes what a forger wrote in printable ASCII and cut short', async () => {
  const verdict = await verdictOn(await signedWith({ origin: `https://\u202e${'x'.repeat(1_000)}` }));
  const detail = verdict.ok ? '' : verdict.detail;
  expect(detail).toMatch(/^[\x20-\x7e⟦⟧]+$/);
  expect(detail).toContain('⟦U+202E⟧');
  expect(detail.length).toBeLessThan(500);
});
test('an origin that is no URL is a fault of the configuration', async () => {
  await expect(verdictOn({ origin: 'stamp.example' })).rejects.toThrow(TypeError);
});
