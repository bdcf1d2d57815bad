import type { TrustedKeys } from '@counterstamp/signatures';
import { verifyProof } from './checkpoint.ts';
import { absent, type Finding, failed, judge } from './finding.ts';
import type { ReceiptPredicate } from './predicate.ts';

/**
 * A signed checkpoint covers this run's history as the receipt shows it. What a chain cannot show is its own tail cut off together with a
 * rewritten head: only a checkpoint that was exported before shows that, and only up to the revision that it covers.
 */
export function checkpointCovers({ run, events, checkpoint }: ReceiptPredicate, keys: TrustedKeys): Finding {
  if (checkpoint === null)
    return absent(
      'No checkpoint covers this run: events cut off the end before the receipt was signed would not be noticed.',
    );
  const verified = verifyProof(checkpoint, keys);
  if (!verified.ok) return failed(`The checkpoint does not hold: ${verified.fault}.`);
  const { leaf } = verified;
  const { seq, at } = verified.checkpoint;
  const last = events.at(-1)?.revision ?? 0;
  const faults: string[] = [];
  if (leaf.run_id !== run.run_id) faults.push(`Checkpoint ${seq} is shown for another run, ${leaf.run_id}.`);
  else if (leaf.revision > last)
    faults.push(
      `Checkpoint ${seq} saw this run at revision ${leaf.revision}: the history was cut off after revision ${last}.`,
    );
  else if (events.find((event) => event.revision === leaf.revision)?.hash !== leaf.chain_head)
    faults.push(`Checkpoint ${seq} saw another history of this run at revision ${leaf.revision}.`);
  const rest =
    leaf.revision === last
      ? ''
      : ` No checkpoint covers revisions ${leaf.revision + 1} to ${last}: events cut off the end after them would not be noticed.`;
  return judge(faults, `Checkpoint ${seq} of ${at} covers this history up to revision ${leaf.revision}.${rest}`);
}
