import { appendFile, open, truncate } from 'node:fs/promises';
import { Envelope } from '@counterstamp/signatures';
import { z } from 'zod';
import type { CheckpointDeps } from './checkpoints.ts';

/** Checkpoints that one read of the database brings. */
const BATCH = 500;
/** Bytes of the file's end that are read to find its last line; a line has less than a thousand. */
const TAIL_BYTES = 8_192;

const Numbered = z.looseObject({ seq: z.int().positive() });

/** A file outside the database with every checkpoint, one JSON line each. */
export interface CheckpointFile {
  /**
   * Appends every stored checkpoint that the file does not have: what a crash or a full disk kept back, and what other processes signed.
   * @throws what the file system or the database says; what was written until then stays.
   */
  bringUpToDate(deps: Pick<CheckpointDeps, 'stored'>): Promise<void>;
}

export function checkpointFile(path: string): CheckpointFile {
  let last: number | undefined;
  return {
    async bringUpToDate({ stored }) {
      if (last === undefined) {
        const end = await endOf(path);
        // Half a line that a crash left is written again as a whole.
        if (end.torn_bytes > 0) await truncate(path, end.size - end.torn_bytes);
        last = end.seq;
      }
      for (let isBehind = true; isBehind; ) {
        const batch = await stored(last, BATCH);
        if (batch.length > 0) {
          const lines = batch.map(({ envelope }) => `${JSON.stringify(envelope)}\n`).join('');
          await appendFile(path, lines, { mode: 0o644 });
        }
        last = batch.at(-1)?.seq ?? last;
        isBehind = batch.length === BATCH;
      }
    },
  };
}

/** Number of the last whole line, 0 without one, and how much of another stands behind it. */
async function endOf(path: string): Promise<{ seq: number; size: number; torn_bytes: number }> {
  const { text, size } = await tailOf(path);
  const lines = text.split('\n');
  const rest = lines.pop() ?? '';
  const seq = lines.reduceRight<number>((found, line) => (found > 0 ? found : seqOf(line)), 0);
  return { seq, size, torn_bytes: Buffer.byteLength(rest) };
}

async function tailOf(path: string): Promise<{ text: string; size: number }> {
  try {
    await using file = await open(path, 'r');
    const { size } = await file.stat();
    const length = Math.min(size, TAIL_BYTES);
    const { buffer } = await file.read(Buffer.alloc(length), 0, length, size - length);
    return { text: buffer.toString('utf8'), size };
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return { text: '', size: 0 };
    throw error;
  }
}

/** 0 for a line that is no checkpoint. */
function seqOf(line: string): number {
  try {
    const { payload } = Envelope.parse(JSON.parse(line));
    return Numbered.parse(JSON.parse(Buffer.from(payload, 'base64').toString('utf8'))).seq;
  } catch {
    return 0;
  }
}
