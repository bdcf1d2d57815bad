import { parseStrictJson } from '@counterstamp/manifest-core';
import {
  type Checkpoint,
  type CheckpointChainFault,
  RECEIPT_PAYLOAD_TYPE,
  ReceiptPredicate,
  verifyCheckpoint,
  verifyCheckpointChain,
} from '@counterstamp/receipts';
import { openEnvelope, type TrustedKeys } from '@counterstamp/signatures';
import { z } from 'zod';
import type { Check } from './check-page.ts';

/** One line of an exported file. */
export interface ExportedLine {
  /** File and line, for a report. */
  place: string;
  text: string;
}

interface Copy {
  place: string;
  envelope: unknown;
  checkpoint: Checkpoint;
  digest: string;
}

const Statement = z.looseObject({ predicate: ReceiptPredicate });

/** Every checkpoint that was signed by a trusted key, once, in the order of the numbers; and the lines that hold none. */
export function readCopies(lines: readonly ExportedLine[], keys: TrustedKeys): { copies: Copy[]; unreadable: Check[] } {
  const copies = new Map<string, Copy>();
  const unreadable: Check[] = [];
  for (const { place, text } of lines) {
    const json = parseStrictJson(text);
    const read = json.ok ? verifyCheckpoint(json.value, keys) : undefined;
    if (json.ok && read?.ok === true) {
      // Several reconcilers write several files, and a checkpoint that is copied twice is one.
      copies.set(read.digest, { place, envelope: json.value, checkpoint: read.checkpoint, digest: read.digest });
    } else {
      const fault = read === undefined || read.ok ? 'it is no JSON' : read.fault;
      unreadable.push(check('line', false, `${place} holds no checkpoint by a trusted key: ${fault}.`));
    }
  }
  return { copies: [...copies.values()].sort((a, b) => a.checkpoint.seq - b.checkpoint.seq), unreadable };
}

/** Whether the copies are one chain without a gap, and where they begin. */
export function checkChain(copies: readonly Copy[], keys: TrustedKeys): Check[] {
  const [first] = copies;
  const last = copies.at(-1);
  if (first === undefined || last === undefined) return [check('chain', false, 'There is no checkpoint to look at.')];
  const faults = verifyCheckpointChain(
    copies.map(({ envelope }) => envelope),
    keys,
  );
  const from = first.checkpoint.seq;
  const range = from === last.checkpoint.seq ? `${from}` : `${from} to ${last.checkpoint.seq}`;
  const chain =
    faults.length === 0
      ? [
          check(
            'chain',
            true,
            `${copies.length} checkpoints, ${range}, of ${first.checkpoint.at} to ${last.checkpoint.at}: each follows the one before it.`,
          ),
        ]
      : faults.map((fault) => check('chain', false, faultSentence(fault, copies)));
  const begin =
    from === 1
      ? check('beginning', true, 'The copies begin with the installation’s first checkpoint.')
      : check('beginning', 'absent', `The copies begin with checkpoint ${from}: they say nothing of those before it.`);
  return [...chain, begin];
}

function faultSentence({ position, fault }: CheckpointChainFault, copies: readonly Copy[]): string {
  const copy = copies[position];
  const before = copies[position - 1]?.checkpoint.seq ?? 0;
  const seq = copy?.checkpoint.seq ?? 0;
  const where = `Checkpoint ${seq} (${copy?.place ?? 'nowhere'})`;
  switch (fault) {
    case 'seq_gap':
      return seq === before
        ? `${where} has the number of another one: two histories were signed.`
        : `${where} follows ${before}: ${seq - before - 1} between them are missing here.`;
    case 'previous_differs':
      return `${where} follows another checkpoint ${before} than the one that is here.`;
    case 'time_reversed':
      return `${where} is older than the one before it.`;
    default:
      return `${where} does not hold: ${fault}.`;
  }
}

/** Whether the checkpoint that a receipt shows is one of the copies: what was handed out is what was exported. */
export function checkAgainst(receipt: unknown, copies: readonly Copy[], keys: TrustedKeys): Check {
  const opened = openEnvelope(receipt, RECEIPT_PAYLOAD_TYPE, keys, 'receipt');
  if (!opened.ok) return check('receipt', false, `The receipt is not signed by a trusted key: ${opened.fault}.`);
  const json = parseStrictJson(opened.payload);
  const statement = Statement.safeParse(json.ok ? json.value : undefined);
  if (!statement.success)
    return check('receipt', false, 'The receipt cannot be read; `counterstamp verify-receipt` says why.');
  const proof = statement.data.predicate.checkpoint;
  if (proof === null) return check('receipt', false, 'The receipt shows no checkpoint: ask for a newer receipt.');
  const shown = verifyCheckpoint(proof.envelope, keys);
  if (!shown.ok) return check('receipt', false, `The receipt’s checkpoint does not hold: ${shown.fault}.`);
  const { seq } = shown.checkpoint;
  if (copies.some(({ digest }) => digest === shown.digest))
    return check('receipt', true, `The receipt’s checkpoint ${seq} is one of the copies.`);
  return check(
    'receipt',
    false,
    copies.some(({ checkpoint }) => checkpoint.seq === seq)
      ? `The receipt shows another checkpoint ${seq} than the copies: two histories were signed.`
      : `The receipt’s checkpoint ${seq} is none of the copies: compare it with newer or older ones.`,
  );
}

function check(name: string, ok: Check['ok'], sentence: string): Check {
  return { check: name, ok, sentence };
}
