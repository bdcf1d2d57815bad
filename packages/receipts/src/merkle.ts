import { createHash } from 'node:crypto';
import type { Digest } from '@counterstamp/manifest-core';

/*
 * The Merkle tree hash of RFC 6962, section 2.1, over SHA-256. Leaves and nodes are hashed under different first bytes, so that no node can
 * be passed off as a leaf.
 */

const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);

/** The tree's root; of no leaves the digest of no bytes. */
export function merkleRoot(leaves: readonly Uint8Array[]): Digest {
  return digestText(rootOf(leaves, 0, leaves.length));
}

/**
 * The siblings on the way from a leaf to the root, the leaf's own first: what `rootFromPath` needs to know besides the leaf.
 * @param index counts from 0.
 * @throws {RangeError} for a leaf that is not there.
 */
export function inclusionPath(leaves: readonly Uint8Array[], index: number): Digest[] {
  if (!Number.isInteger(index) || index < 0 || index >= leaves.length)
    throw new RangeError(`leaf ${index} is not among ${leaves.length}`);
  const fromRoot: Digest[] = [];
  let start = 0;
  let end = leaves.length;
  while (end - start > 1) {
    const middle = start + splitOf(end - start);
    const left = index < middle;
    fromRoot.push(digestText(left ? rootOf(leaves, middle, end) : rootOf(leaves, start, middle)));
    if (left) end = middle;
    else start = middle;
  }
  return fromRoot.reverse();
}

/**
 * The root of the tree of `size` leaves that has this leaf at this index (RFC 9162, section 2.1.3.2); null for a path that fits no such tree.
 * The caller compares it with the root that it trusts.
 */
export function rootFromPath(leaf: Uint8Array, index: number, size: number, path: readonly Digest[]): Digest | null {
  if (!Number.isSafeInteger(index) || !Number.isSafeInteger(size) || index < 0 || index >= size) return null;
  // Halved by division: bit operations would cut both to 32 bits.
  let node = index;
  let last = size - 1;
  let hash = leafHash(leaf);
  for (const sibling of path) {
    if (last === 0) return null;
    if (node % 2 === 1 || node === last) {
      hash = nodeHash(digestBytes(sibling), hash);
      // A last node without a sibling moves up as it is.
      while (node % 2 === 0 && node !== 0) {
        node /= 2;
        last = Math.floor(last / 2);
      }
    } else hash = nodeHash(hash, digestBytes(sibling));
    node = Math.floor(node / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? digestText(hash) : null;
}

function rootOf(leaves: readonly Uint8Array[], start: number, end: number): Buffer {
  const size = end - start;
  if (size === 0) return createHash('sha256').digest();
  const only = leaves[start];
  if (size === 1 && only !== undefined) return leafHash(only);
  const middle = start + splitOf(size);
  return nodeHash(rootOf(leaves, start, middle), rootOf(leaves, middle, end));
}

/** The largest power of two below a size of at least two: how many leaves the left half has. */
function splitOf(size: number): number {
  let split = 1;
  while (split * 2 < size) split *= 2;
  return split;
}

function leafHash(bytes: Uint8Array): Buffer {
  return createHash('sha256').update(LEAF).update(bytes).digest();
}

function nodeHash(left: Uint8Array, right: Uint8Array): Buffer {
  return createHash('sha256').update(NODE).update(left).update(right).digest();
}

function digestText(hash: Buffer): Digest {
  return `sha256:${hash.toString('hex')}` as Digest;
}

function digestBytes(digest: Digest): Buffer {
  return Buffer.from(digest.slice('sha256:'.length), 'hex');
}
