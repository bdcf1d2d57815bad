import { canonicalJson, Digest, digestOf, RunId } from '@counterstamp/manifest-core';
import {
  Envelope,
  type EnvelopeFault,
  openEnvelope,
  parseCanonicalRecord,
  type SigningKey,
  sealEnvelope,
  type TrustedKeys,
} from '@counterstamp/signatures';
import { z } from 'zod';
import { Instant } from './instant.ts';
import { inclusionPath, merkleRoot, rootFromPath } from './merkle.ts';

export const CHECKPOINT_PAYLOAD_TYPE = 'application/vnd.counterstamp.checkpoint+json';

/** Where one run's history stood: its newest event's revision and hash. The tree's leaf is this as canonical JSON. */
export const CheckpointLeaf = z.strictObject({ run_id: RunId, revision: z.int().positive(), chain_head: Digest });
export type CheckpointLeaf = z.infer<typeof CheckpointLeaf>;

/** What a checkpoint says: these runs moved since the one before, and this is where each stood. */
export const Checkpoint = z
  .strictObject({
    profile: z.literal('cs.checkpoint.v1'),
    /** 1 for the installation's first, one more with each. */
    seq: z.int().positive(),
    at: Instant,
    /** `cs.checkpoint.v1` digest of the payload before; null for the first. */
    previous: Digest.nullable(),
    /** Number of leaves. 0: nothing moved, which is worth a signature too. */
    size: z.int().nonnegative(),
    /** RFC 6962 tree hash of the leaves. */
    root: Digest,
  })
  .refine(({ seq, previous }) => (seq === 1) === (previous === null), 'exactly the first has none before it');
export type Checkpoint = z.infer<typeof Checkpoint>;

/** Shows that a checkpoint covers a run, without the other runs. */
export const CheckpointProof = z.strictObject({
  envelope: Envelope,
  leaf: CheckpointLeaf,
  index: z.int().nonnegative(),
  path: z.array(Digest).max(64),
});
export type CheckpointProof = z.infer<typeof CheckpointProof>;

export type CheckpointFault = EnvelopeFault | 'checkpoint_malformed';
export type VerifiedCheckpoint =
  | { ok: true; checkpoint: Checkpoint; digest: Digest; key_id: string }
  | { ok: false; fault: CheckpointFault };

/**
 * Signs the checkpoint that follows `previous` (null: the first).
 * @param leaves the runs that moved since then, in the order that `proofFor` will be given them in. May be none.
 * @param at the database's clock.
 * @throws {RangeError} when a run is named twice, `at` is before the previous one, or `previous` is no checkpoint.
 */
export function makeCheckpoint(
  previous: Envelope | null,
  leaves: readonly CheckpointLeaf[],
  at: string,
  key: SigningKey,
): Envelope {
  if (new Set(leaves.map((leaf) => leaf.run_id)).size !== leaves.length)
    throw new RangeError('a run is named twice in one checkpoint');
  const before = previous === null ? null : ownCheckpoint(previous);
  if (before !== null && at < before.checkpoint.at) throw new RangeError(`${at} is before the checkpoint before`);
  const checkpoint = Checkpoint.parse({
    profile: 'cs.checkpoint.v1',
    seq: (before?.checkpoint.seq ?? 0) + 1,
    at,
    previous: before?.digest ?? null,
    size: leaves.length,
    root: merkleRoot(leaves.map(leafBytes)),
  });
  return sealEnvelope(CHECKPOINT_PAYLOAD_TYPE, canonicalJson(checkpoint), key);
}

/** Opens a checkpoint that came from anywhere: signed by a key that may vouch for checkpoints, and written in the one canonical form. */
export function verifyCheckpoint(envelope: unknown, keys: TrustedKeys): VerifiedCheckpoint {
  const opened = openEnvelope(envelope, CHECKPOINT_PAYLOAD_TYPE, keys, 'checkpoint');
  if (!opened.ok) return opened;
  const read = readCheckpoint(opened.payload);
  return read === undefined
    ? { ok: false, fault: 'checkpoint_malformed' }
    : { ok: true, ...read, key_id: opened.key_id };
}

export interface CheckpointChainFault {
  /** Place in the given list, from 0. */
  position: number;
  /**
   * `seq_gap`: one or more are missing before it, or it stands twice. `previous_differs`: it follows another checkpoint than the one before it
   * here. `time_reversed`: it is older than the one before it.
   */
  fault: CheckpointFault | 'seq_gap' | 'previous_differs' | 'time_reversed';
}

/**
 * Checks a list of checkpoints as they were exported, oldest first; it may begin anywhere. A rotation of keys in between changes nothing, as
 * long as both are trusted. One that cannot be read is named, and its neighbours are not compared with it.
 */
export function verifyCheckpointChain(envelopes: readonly unknown[], keys: TrustedKeys): CheckpointChainFault[] {
  const faults: CheckpointChainFault[] = [];
  let before: Extract<VerifiedCheckpoint, { ok: true }> | undefined;
  for (const [position, envelope] of envelopes.entries()) {
    const verified = verifyCheckpoint(envelope, keys);
    if (!verified.ok) faults.push({ position, fault: verified.fault });
    else if (before !== undefined) {
      const { checkpoint } = verified;
      if (checkpoint.seq !== before.checkpoint.seq + 1) faults.push({ position, fault: 'seq_gap' });
      else if (checkpoint.previous !== before.digest) faults.push({ position, fault: 'previous_differs' });
      if (checkpoint.at < before.checkpoint.at) faults.push({ position, fault: 'time_reversed' });
    }
    before = verified.ok ? verified : undefined;
  }
  return faults;
}

/**
 * The proof that a checkpoint covers a run; undefined when the run did not move before it.
 * @param leaves all of the checkpoint's, in its order.
 * @throws {RangeError} when they are not the checkpoint's.
 */
export function proofFor(
  envelope: Envelope,
  leaves: readonly CheckpointLeaf[],
  runId: string,
): CheckpointProof | undefined {
  const bytes = leaves.map(leafBytes);
  const { checkpoint } = ownCheckpoint(envelope);
  if (checkpoint.size !== leaves.length || checkpoint.root !== merkleRoot(bytes))
    throw new RangeError(`these are not the leaves of checkpoint ${checkpoint.seq}`);
  const index = leaves.findIndex((leaf) => leaf.run_id === runId);
  const leaf = leaves[index];
  return leaf === undefined ? undefined : { envelope, leaf, index, path: inclusionPath(bytes, index) };
}

export type VerifiedProof =
  | { ok: true; checkpoint: Checkpoint; leaf: CheckpointLeaf }
  | { ok: false; fault: CheckpointFault | 'leaf_not_included' };

/** Whether a trusted checkpoint covers the leaf that a proof shows. */
export function verifyProof(proof: CheckpointProof, keys: TrustedKeys): VerifiedProof {
  const verified = verifyCheckpoint(proof.envelope, keys);
  if (!verified.ok) return verified;
  const { checkpoint } = verified;
  return rootFromPath(leafBytes(proof.leaf), proof.index, checkpoint.size, proof.path) === checkpoint.root
    ? { ok: true, checkpoint, leaf: proof.leaf }
    : { ok: false, fault: 'leaf_not_included' };
}

/** Members one by one: what a caller's leaf carries besides is no part of it. */
function leafBytes({ run_id, revision, chain_head }: CheckpointLeaf): Uint8Array {
  return Buffer.from(canonicalJson({ run_id, revision, chain_head }), 'utf8');
}

/** A checkpoint that this installation signed itself; its signature is not looked at. */
function ownCheckpoint(envelope: Envelope): { checkpoint: Checkpoint; digest: Digest } {
  const read = readCheckpoint(Buffer.from(envelope.payload, 'base64').toString('utf8'));
  if (envelope.payloadType !== CHECKPOINT_PAYLOAD_TYPE || read === undefined)
    throw new RangeError('the envelope holds no checkpoint');
  return read;
}

function readCheckpoint(payload: string): { checkpoint: Checkpoint; digest: Digest } | undefined {
  const checkpoint = parseCanonicalRecord(Checkpoint, payload);
  return checkpoint === undefined ? undefined : { checkpoint, digest: digestOf('cs.checkpoint.v1', payload) };
}
