import type { Digest } from '@counterstamp/manifest-core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { inclusionPath, merkleRoot, rootFromPath } from './merkle.ts';

/** The eight leaves of the Certificate Transparency reference implementation's tests, and the roots of the first n of them. */
const LEAVES = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'].map(
  (hex) => Buffer.from(hex, 'hex'),
);
const ROOTS = [
  'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
].map((hex) => `sha256:${hex}`);

const someLeaves = fc.array(fc.uint8Array({ maxLength: 40 }), { minLength: 1, maxLength: 70 });
const leafAmongSome = someLeaves.chain((leaves) =>
  fc.record({ leaves: fc.constant(leaves), index: fc.nat({ max: leaves.length - 1 }) }),
);

describe('the tree hash', () => {
  test.each(ROOTS.map((root, size) => ({ size, root })))('of $size leaves is the known one', ({ size, root }) => {
    expect(merkleRoot(LEAVES.slice(0, size))).toBe(root);
  });
  test('changes with any leaf, and with the order of two', () => {
    const root = merkleRoot(LEAVES);
    for (const index of LEAVES.keys()) expect(merkleRoot(LEAVES.with(index, Buffer.from('another')))).not.toBe(root);
    expect(merkleRoot(LEAVES.toReversed())).not.toBe(root);
  });
});

describe('an inclusion path', () => {
  test.each([
    [
      0,
      [
        'sha256:96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7',
        'sha256:5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e',
        'sha256:6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4',
      ],
    ],
    [
      5,
      [
        'sha256:bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b',
        'sha256:ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0',
        'sha256:d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
      ],
    ],
  ])('of leaf %i of eight is the known one', (index, path) => {
    expect(inclusionPath(LEAVES, index)).toEqual(path);
  });
  test('leads from every leaf to the root', () => {
    fc.assert(
      fc.property(leafAmongSome, ({ leaves, index }) => {
        const leaf = leaves[index] ?? new Uint8Array();
        expect(rootFromPath(leaf, index, leaves.length, inclusionPath(leaves, index))).toBe(merkleRoot(leaves));
      }),
    );
  });
  test('leads nowhere near it from another leaf, with another sibling, or with one more or less', () => {
    fc.assert(
      fc.property(leafAmongSome, fc.nat(), ({ leaves, index }, at) => {
        const leaf = leaves[index] ?? new Uint8Array();
        const path = inclusionPath(leaves, index);
        const root = merkleRoot(leaves);
        const other = merkleRoot([Buffer.from('none of them')]);
        expect(rootFromPath(Uint8Array.of(...leaf, 1), index, leaves.length, path)).not.toBe(root);
        expect(rootFromPath(leaf, index, leaves.length, [...path, other])).toBeNull();
        if (path.length === 0) return;
        expect(rootFromPath(leaf, index, leaves.length, path.slice(1))).not.toBe(root);
        expect(rootFromPath(leaf, index, leaves.length, path.with(at % path.length, other))).not.toBe(root);
      }),
    );
  });
  test('never shows an inner node as a leaf', () => {
    const [first, second, third] = LEAVES as [Buffer, Buffer, Buffer];
    const bytes = (digest: Digest) => Buffer.from(digest.slice(7), 'hex');
    const node = Buffer.concat([bytes(merkleRoot([first])), bytes(merkleRoot([second]))]);
    const root = merkleRoot([first, second, third]);
    expect(rootFromPath(node, 0, 2, [merkleRoot([third])])).not.toBe(root);
  });
  test.each([
    [-1, 3],
    [3, 3],
    [0.5, 3],
    [0, 0],
    [Number.NaN, 3],
  ])('is none for index %d of %d', (index, size) => {
    expect(rootFromPath(Uint8Array.of(1), index, size, [])).toBeNull();
    expect(() => inclusionPath(LEAVES.slice(0, size), index)).toThrow(RangeError);
  });
});
