import { sha256Text } from '@counterstamp/manifest-core';
import {
  generateSigningKey,
  parseSigningKey,
  parseTrustedKeys,
  publicJwk,
  sealEnvelope,
  trustedKeysText,
} from '@counterstamp/signatures';
import { describe, expect, test } from 'vitest';
import {
  CHECKPOINT_PAYLOAD_TYPE,
  CheckpointLeaf,
  makeCheckpoint,
  proofFor,
  verifyCheckpoint,
  verifyCheckpointChain,
  verifyProof,
} from './checkpoint.ts';

const old = parseSigningKey(generateSigningKey());
const current = parseSigningKey(generateSigningKey());
const receiptOnly = parseSigningKey(generateSigningKey());
const keys = parseTrustedKeys(
  trustedKeysText([
    publicJwk(old, ['checkpoint']),
    publicJwk(current, ['checkpoint', 'receipt']),
    publicJwk(receiptOnly, ['receipt']),
  ]),
);
const at = (minute: number) => `2026-01-01T00:0${minute}:00.000000Z`;
const leaf = (n: number, revision = 3) =>
  CheckpointLeaf.parse({
    run_id: `run_0191c0de-0000-7000-8000-00000000000${n}`,
    revision,
    chain_head: sha256Text(`head ${n} ${revision}`),
  });
const leaves = [leaf(1), leaf(2), leaf(3)];

/** Three in a row, the key rotated after the first, the second a heartbeat. */
const first = makeCheckpoint(null, leaves, at(1), old);
const second = makeCheckpoint(first, [], at(2), current);
const third = makeCheckpoint(second, [leaf(1, 5)], at(3), current);

describe('a checkpoint', () => {
  test('says how many runs moved, and follows the one before', () => {
    const [one, two] = [verifyCheckpoint(first, keys), verifyCheckpoint(second, keys)];
    expect(one).toMatchObject({ ok: true, key_id: old.key_id, checkpoint: { seq: 1, previous: null, size: 3 } });
    expect(two).toMatchObject({ ok: true, checkpoint: { seq: 2, previous: one.ok && one.digest, size: 0 } });
  });
  test('of no runs has the root of the empty tree', () => {
    const verified = verifyCheckpoint(second, keys);
    expect(verified.ok && verified.checkpoint.root).toBe(sha256Text(''));
  });
  test('is refused from a key that may not vouch for checkpoints', () => {
    const forged = makeCheckpoint(first, leaves, at(2), receiptOnly);
    expect(verifyCheckpoint(forged, keys)).toEqual({ ok: false, fault: 'key_unknown' });
  });
  test.each([
    ['not canonical', (text: string) => `${text} `],
    ['of another profile', (text: string) => text.replace('cs.checkpoint.v1', 'cs.checkpoint.v2')],
    [
      'the second and says that nothing was before it',
      (text: string) => text.replace(/"previous":"[^"]*"/, '"previous":null'),
    ],
    ['more than a checkpoint says', (text: string) => text.replace('{', '{"a":1,')],
    ['no JSON', () => 'checkpoint'],
  ])('is refused when it is %s', (_, change) => {
    const text = Buffer.from(second.payload, 'base64').toString('utf8');
    const sealed = sealEnvelope(CHECKPOINT_PAYLOAD_TYPE, change(text), current);
    expect(verifyCheckpoint(sealed, keys)).toEqual({ ok: false, fault: 'checkpoint_malformed' });
  });
  test('is not made of a run that is named twice, back in time, or after something else', () => {
    expect(() => makeCheckpoint(null, [leaf(1), leaf(1, 4)], at(1), current)).toThrow(RangeError);
    expect(() => makeCheckpoint(second, [], at(1), current)).toThrow(RangeError);
    const other = sealEnvelope('application/json', '{}', current);
    expect(() => makeCheckpoint(other, [], at(4), current)).toThrow(RangeError);
  });
});

describe('a list of checkpoints', () => {
  const otherSecond = makeCheckpoint(first, [leaf(2, 9)], at(2), current);
  const tampered = { ...second, payload: third.payload };
  test.each([
    ['holds over a rotation of keys and a heartbeat', [first, second, third], []],
    ['may begin anywhere', [second, third], []],
    ['may be empty', [], []],
    ['shows a gap', [first, third], [{ position: 1, fault: 'seq_gap' }]],
    ['shows a repetition', [first, first], [{ position: 1, fault: 'seq_gap' }]],
    [
      'shows another order',
      [second, first],
      [
        { position: 1, fault: 'seq_gap' },
        { position: 1, fault: 'time_reversed' },
      ],
    ],
    ['shows a fork', [first, otherSecond, third], [{ position: 2, fault: 'previous_differs' }]],
    [
      'shows one that is not signed, and goes on',
      [first, tampered, third],
      [{ position: 1, fault: 'signature_invalid' }],
    ],
    ['shows what is none', [first, 'text'], [{ position: 1, fault: 'envelope_malformed' }]],
  ])('%s', (_, envelopes, faults) => {
    expect(verifyCheckpointChain(envelopes, keys)).toEqual(faults);
  });
});

describe('a proof', () => {
  test.each(leaves)('shows that $run_id is covered', (covered) => {
    const proof = proofFor(first, leaves, covered.run_id);
    expect(proof && verifyProof(proof, keys)).toMatchObject({ ok: true, leaf: covered });
  });
  test('of another head, place or path does not', () => {
    const proof = proofFor(first, leaves, leaf(2).run_id);
    if (proof === undefined) throw new Error('the run is covered');
    const others = [
      { ...proof, leaf: leaf(2, 4) },
      { ...proof, index: 0 },
      { ...proof, path: proof.path.toReversed() },
    ];
    for (const other of others) expect(verifyProof(other, keys)).toEqual({ ok: false, fault: 'leaf_not_included' });
    expect(verifyProof({ ...proof, envelope: tamperedRoot() }, keys)).toEqual({
      ok: false,
      fault: 'signature_invalid',
    });
  });
  test('is none for a run that did not move, and is not made from other leaves', () => {
    expect(proofFor(first, leaves, leaf(9).run_id)).toBeUndefined();
    expect(() => proofFor(first, leaves.toReversed(), leaf(1).run_id)).toThrow(RangeError);
  });
});

function tamperedRoot() {
  const text = Buffer.from(first.payload, 'base64').toString('utf8');
  return { ...first, payload: Buffer.from(text.replace(/"root":"sha256:./, '"root":"sha256:x')).toString('base64') };
}
