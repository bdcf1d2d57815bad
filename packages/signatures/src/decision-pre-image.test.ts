import { createHash } from 'node:crypto';
import { digestOf } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import {
  decisionChallenge,
  decisionChallengeText,
  decisionPreImage,
  parseDecisionPreImage,
  reasonDigest,
} from './decision-pre-image.ts';
import { isBefore } from './instant.ts';

const FIELDS = {
  profile: 'cs.decision.v1',
  approval_id: 'apr_1',
  decision: 'approve',
  approver: 'prn_1',
  credential: 'AAECAwQFBgcICQoLDA0ODw',
  approval_digest: digestOf('cs.approval.v1', '{}'),
  nonce: 'EBESExQVFhcYGRobHB0eHw',
  issued_at: '2026-11-30T12:00:00.000000Z',
  expires_at: '2026-11-30T12:05:00.000000Z',
  reason_digest: null,
} as const;
const TEXT = decisionPreImage(FIELDS);

describe('a pre-image', () => {
  test('is read as it was written', () => {
    expect(parseDecisionPreImage(TEXT)).toEqual(FIELDS);
  });
  test('has SHA-256 of its UTF-8 as the challenge, written as base64url', () => {
    expect(Buffer.from(decisionChallenge(TEXT)).toString('hex')).toBe(createHash('sha256').update(TEXT).digest('hex'));
    expect(decisionChallengeText(TEXT)).toBe(createHash('sha256').update(TEXT).digest('base64url'));
  });
  test('has one text, whatever the order of its members', () => {
    const { profile, ...others } = FIELDS;
    expect(decisionPreImage({ ...others, profile })).toBe(TEXT);
    expect(parseDecisionPreImage(JSON.stringify(FIELDS))).toBeUndefined();
    expect(parseDecisionPreImage(`${TEXT}\n`)).toBeUndefined();
  });
  test('of a broken glass carries the digest of its reason, under a tag of its own', () => {
    const reason_digest = reasonDigest('the bank calls');
    const text = decisionPreImage({ ...FIELDS, decision: 'break_glass', reason_digest });
    expect(parseDecisionPreImage(text)?.reason_digest).toBe(digestOf('cs.reason.v1', 'the bank calls'));
  });
  test.each([
    ['a broken glass without a reason', { decision: 'break_glass' }],
    ['an approval with a reason', { reason_digest: reasonDigest('because') }],
    ['another profile', { profile: 'cs.decision.v2' }],
    ['a decision that does not exist', { decision: 'maybe' }],
    ['a nonce that could be guessed', { nonce: 'AAECAw' }],
    ['a nonce in another spelling', { nonce: 'EBESExQVFhcYGRobHB0eHx' }],
    ['a digest that is none', { approval_digest: 'sha256:00' }],
    ['a local time', { issued_at: '2026-11-30T12:00:00+01:00' }],
    ['a day that does not exist', { expires_at: '2026-02-30T12:00:00Z' }],
    ['a member too many', { admin: true }],
  ])('with %s is refused', (_, change) => {
    const text = canonicalText({ ...FIELDS, ...change });
    expect(parseDecisionPreImage(text)).toBeUndefined();
  });
});

/** The members of a flat object in RFC 8785's order. */
function canonicalText(fields: Readonly<Record<string, string | boolean | null>>): string {
  return JSON.stringify(Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1))));
}

test.each([
  ['2026-11-30T12:00:00.000000Z', '2026-11-30T12:00:00.000001Z', true],
  ['2026-11-30T12:00:00Z', '2026-11-30T12:00:00.000001Z', true],
  ['2026-11-30T12:00:00.9Z', '2026-11-30T12:00:00.899999Z', false],
  ['2026-11-30T12:00:00Z', '2026-11-30T12:00:00.000Z', false],
  ['2026-11-30T12:00:00.000Z', '2026-11-30T12:00:00Z', false],
])('%s is before %s: %s', (left, right, before) => {
  expect(isBefore(left, right)).toBe(before);
});
