import { readFileSync } from 'node:fs';
import { canonicalJson, Digest } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { CredentialRecord, certifyCredential, verifyCredential } from './credential.ts';
import {
  DECISIONS,
  DecisionPreImage,
  decisionChallenge,
  decisionPreImage,
  parseDecisionPreImage,
  reasonDigest,
} from './decision-pre-image.ts';
import { Envelope } from './envelope.ts';
import { parseSigningKey, parseTrustedKeys } from './keys.ts';
import { SignedDecision, verifySignedDecision } from './signed-decision.ts';

const Vector = z.strictObject({
  description: z.string(),
  origin: z.string(),
  signing_key: z.json(),
  trusted_keys: z.json(),
  credential: z.strictObject({ record: CredentialRecord, payload: z.string(), envelope: Envelope }),
  decisions: z.array(
    z.strictObject({
      reason: z.string().nullable(),
      fields: DecisionPreImage,
      pre_image: z.string(),
      challenge_hex: z.string(),
      signed: SignedDecision,
      expected: z.strictObject({
        approval_id: z.string(),
        decision: z.enum(DECISIONS),
        approver: z.string(),
        tenant_id: z.string(),
        approval_digest: Digest,
        decided_at: z.string(),
      }),
    }),
  ),
});

const FILE = new URL('../../../docs/reference/signature-vectors/decision.json', import.meta.url);
const { origin, signing_key, trusted_keys, credential, decisions } = Vector.parse(
  JSON.parse(readFileSync(FILE, 'utf8')),
);
const keys = parseTrustedKeys(JSON.stringify(trusted_keys));

describe('the published vectors', () => {
  test('certify the credential byte for byte', () => {
    expect(canonicalJson(credential.record)).toBe(credential.payload);
    expect(certifyCredential(credential.record, parseSigningKey(JSON.stringify(signing_key)))).toEqual(
      credential.envelope,
    );
    expect(verifyCredential(credential.envelope, keys)).toEqual({ ok: true, record: credential.record });
  });
  test.each(decisions)(
    'of $fields.decision have this pre-image, this challenge and an assertion that holds',
    async (vector) => {
      const { fields, pre_image, challenge_hex, reason, signed, expected } = vector;
      expect(decisionPreImage(fields)).toBe(pre_image);
      expect(parseDecisionPreImage(pre_image)).toEqual(fields);
      expect(Buffer.from(decisionChallenge(pre_image)).toString('hex')).toBe(challenge_hex);
      expect(fields.reason_digest).toBe(reason === null ? null : reasonDigest(reason));
      expect(signed.pre_image).toBe(pre_image);
      expect(
        await verifySignedDecision(signed, credential.envelope, { ...expected, reason }, { keys, origin }),
      ).toEqual({
        ok: true,
        pre_image: fields,
      });
    },
  );
  test('cover an approval and a broken glass', () => {
    expect(decisions.map(({ fields }) => fields.decision)).toEqual(['approve', 'break_glass']);
  });
});
