import { appendFile, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PROFILES } from '@counterstamp/manifest-core';
import type { CheckpointDue } from '@counterstamp/manifest-store';
import { verifyCheckpoint, verifyCheckpointChain } from '@counterstamp/receipts';
import {
  type Envelope,
  generateSigningKey,
  parseSigningKey,
  parseTrustedKeys,
  publicJwk,
  trustedKeysText,
} from '@counterstamp/signatures';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { handClock, recordedLog } from '../../../testing/worker-fakes.ts';
import { checkpointFile } from './checkpoint-file.ts';
import { type CheckpointDeps, checkpointOnce, keepCheckpoints } from './checkpoints.ts';

const durations = PROFILES.fast;
const key = parseSigningKey(generateSigningKey());
const trusted = parseTrustedKeys(trustedKeysText([publicJwk(key, ['checkpoint'])]));
const leavesOf = (count: number) =>
  Array.from({ length: count }, (_, n) => ({
    run_id: `run_00000000-0000-7000-8000-${String(n).padStart(12, '0')}`,
    revision: 1,
    chain_head: `sha256:${String(n).padStart(64, '0')}`,
  }));

/** A database in which so many runs moved before each checkpoint, in their order; where the list ends, nothing is due. */
function lab(moved: number[], script: Partial<CheckpointDeps> = {}) {
  const stored: Envelope[] = [];
  const clock = handClock();
  const { log, lines } = recordedLog();
  const wanted: object[] = [];
  const deps: CheckpointDeps = {
    due: (asked) => {
      wanted.push(asked);
      const count = moved[stored.length];
      if (count === undefined) return Promise.resolve(undefined);
      const seq = stored.length + 1;
      const at = `2026-09-30T14:00:${String(seq).padStart(2, '0')}.000000Z`;
      const previous = (stored.at(-1) ?? null) as CheckpointDue['previous'];
      const covered_until = count === 5_000 ? '2026-09-30T14:00:00.000000Z' : at;
      return Promise.resolve({ seq, at, covered_until, previous, leaves: leavesOf(count) });
    },
    commit: (_, envelope) => {
      stored.push(envelope);
      return Promise.resolve(true);
    },
    stored: (after, limit) =>
      Promise.resolve(stored.slice(after, after + limit).map((envelope, n) => ({ seq: after + n + 1, envelope }))),
    clock,
    durations,
    log,
    ...script,
  };
  return { deps, stored, clock, lines, wanted };
}

let folder: string;
let file: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'cs-checkpoints-'));
  file = path.join(folder, 'checkpoints.jsonl');
});
afterEach(() => rm(folder, { recursive: true }));

const exported = async () =>
  (await readFile(file, 'utf8'))
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Envelope);

describe('one round', () => {
  test('signs what is due as the next link of one chain and stores it', async () => {
    const { deps, stored, wanted } = lab([2, 0, 1]);
    for (let round = 0; round < 3; round++) expect(await checkpointOnce(key, deps)).toBe(false);
    expect(verifyCheckpointChain(stored, trusted)).toEqual([]);
    const sizes = stored.map((envelope) => verifyCheckpoint(envelope, trusted)).map((one) => one.ok && one.checkpoint);
    expect(sizes).toMatchObject([{ size: 2 }, { size: 0 }, { size: 1 }]);
    const interval_ms = durations.checkpoint_ms;
    expect(wanted[0]).toEqual({ interval_ms, heartbeat_ms: 60 * interval_ms, limit: 5_000 });
  });

  test('says nothing when nothing is due, or when another reconciler stored the number first', async () => {
    expect(await checkpointOnce(key, lab([]).deps)).toBe(false);
    const lost = lab([1], { commit: () => Promise.resolve(false) });
    expect(await checkpointOnce(key, lost.deps)).toBe(false);
    expect(lost.lines).toEqual([]);
  });
});

describe('the exported file', () => {
  test('has every stored checkpoint, one line each, and only what the database has', async () => {
    const { deps, stored } = lab([2, 0, 1]);
    const copy = checkpointFile(file);
    for (let round = 0; round < 3; round++) {
      await checkpointOnce(key, deps);
      await copy.bringUpToDate(deps);
    }
    await copy.bringUpToDate(deps);
    expect(await exported()).toEqual(stored);
  });

  test('gets what a crash kept back, and what other processes signed, by whoever starts next', async () => {
    const { deps, stored } = lab([1, 1, 1, 1]);
    await checkpointOnce(key, deps);
    await checkpointFile(file).bringUpToDate(deps);
    for (let round = 0; round < 2; round++) await checkpointOnce(key, deps);
    await appendFile(file, JSON.stringify(stored[1]).slice(0, 40));
    await checkpointFile(file).bringUpToDate(deps);
    expect(await exported()).toEqual(stored);
  });

  test('that cannot be written leaves what is stored, and is written once it can be', async () => {
    const { deps, stored } = lab([1]);
    await checkpointOnce(key, deps);
    const copy = checkpointFile(path.join(folder, 'later', 'file.jsonl'));
    await expect(copy.bringUpToDate(deps)).rejects.toMatchObject({ code: 'ENOENT' });
    await mkdir(path.join(folder, 'later'));
    await copy.bringUpToDate(deps);
    expect(JSON.parse(await readFile(path.join(folder, 'later', 'file.jsonl'), 'utf8'))).toEqual(stored[0]);
  });
});

describe('keeping checkpoints', () => {
  /** Rounds until so many pauses were made. */
  async function kept({ deps, clock }: ReturnType<typeof lab>, pauses: number): Promise<void> {
    const ended = new AbortController();
    const sleep: typeof clock.sleep = async (ms, signal) => {
      await clock.sleep(ms, signal);
      if (clock.sleeps.length === pauses) ended.abort();
    };
    await keepCheckpoints({ key, file }, { ...deps, clock: { ...clock, sleep } }, ended.signal);
  }

  test('pauses for the interval after each round, but not after a full one', async () => {
    const work = lab([5_000, 3, 1]);
    await kept(work, 2);
    expect(work.stored).toHaveLength(3);
    expect(work.clock.sleeps).toEqual([durations.checkpoint_ms, durations.checkpoint_ms]);
  });

  test('goes on after a round that failed', async () => {
    const work = lab([1]);
    let asked = 0;
    const due: CheckpointDeps['due'] = (wanted) =>
      asked++ === 0 ? Promise.reject(new Error('no answer')) : work.deps.due(wanted);
    await kept({ ...work, deps: { ...work.deps, due } }, 2);
    expect(work.stored).toHaveLength(1);
    expect(work.lines[0]).toMatchObject({
      reason: 'no answer',
      message: expect.stringContaining('a checkpoint was not made'),
    });
  });
});
