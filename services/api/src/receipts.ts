import {
  type Checkpoints,
  CheckpointsQuery,
  type PublicKeys,
  ReceiptQuery,
  type SignedEnvelope,
} from '@counterstamp/api-contract';
import { Digest, RunId } from '@counterstamp/manifest-core';
import type { ReceiptRecord } from '@counterstamp/manifest-store';
import { type CheckpointProof, makeReceipt, proofFor } from '@counterstamp/receipts';
import { Envelope } from '@counterstamp/signatures';
import { type Answer, answered, type Call, runIdOf } from './command.ts';
import type { ApiDeps } from './deps.ts';
import { refused, refusedBy } from './problem.ts';
import { parseQuery } from './query.ts';

/** A run's receipt as it stands now: also of one that is not at its end. */
export async function receipt(call: Call): Promise<Answer<SignedEnvelope>> {
  const { deps, who, request } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const query = parseQuery(ReceiptQuery, request);
  if (!query.ok) return refusedBy(query.refusal);
  if (deps.signIn === undefined) return refused('sign_in_unavailable');
  const record = await deps.store.receipt(who.tenant_id, id.run_id, query.value.disclose === 'all');
  if (record === undefined) return refused('run_not_found');
  const { covering, decisions, ...recorded } = record;
  const predicate = {
    ...recorded,
    // A certificate that is none any more certifies nobody: the receipt says so, rather than not being made.
    decisions: decisions.map((decision) => ({
      ...decision,
      certificate: Envelope.safeParse(decision.certificate).data ?? null,
    })),
    checkpoint: proofOf(record.run.run_id, covering),
  };
  return answered(makeReceipt(predicate, deps.signIn.key));
}

/** The proof that a checkpoint covers the run; null where none does yet. */
function proofOf(run_id: string, covering: ReceiptRecord['covering']): CheckpointProof | null {
  if (covering === null) return null;
  const leaves = covering.leaves.map((leaf) => ({
    run_id: RunId.parse(leaf.run_id),
    revision: leaf.revision,
    chain_head: Digest.parse(leaf.chain_head),
  }));
  return proofFor(Envelope.parse(covering.envelope), leaves, run_id) ?? null;
}

/** The installation's checkpoints, for whoever keeps copies. */
export async function listCheckpoints({ deps, request }: Call): Promise<Answer<Checkpoints>> {
  const query = parseQuery(CheckpointsQuery, request);
  if (!query.ok) return refusedBy(query.refusal);
  const { after, limit } = query.value;
  const found = await deps.store.checkpoints(after, limit);
  return answered({
    checkpoints: found.map(({ envelope }) => Envelope.parse(envelope)),
    next_after: found.at(-1)?.seq ?? after,
  });
}

/** What anybody may know. A verifier who takes the keys from here alone trusts whoever answers. */
export function publicKeys({ signIn }: Pick<ApiDeps, 'signIn'>): Answer<PublicKeys> {
  return signIn === undefined ? refused('sign_in_unavailable') : answered(signIn.keys.published);
}
