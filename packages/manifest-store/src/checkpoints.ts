import type { JsonObject } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';

/** Where one run's history stood. */
export interface ChainHead {
  run_id: string;
  revision: number;
  chain_head: string;
}

/** What the next checkpoint commits to; `previous` is the envelope before it, null for the first. */
export interface CheckpointDue {
  seq: number;
  /** The database's clock. */
  at: string;
  /** Events up to here are covered with it. */
  covered_until: string;
  previous: JsonObject | null;
  leaves: ChainHead[];
}

/**
 * The chain heads that no checkpoint has yet, oldest movement first; `undefined`: the next checkpoint is not due.
 * @param wanted.interval_ms milliseconds between two checkpoints while runs move. `heartbeat_ms`: while none does.
 * @param wanted.limit leaves of one checkpoint at most; what is left is the next one's.
 */
export async function checkpointDue(
  sql: Sql,
  wanted: { interval_ms: number; heartbeat_ms: number; limit: number },
): Promise<CheckpointDue | undefined> {
  const [row] = await answered(sql<{ due: string | null }[]>`
    select cs.checkpoint_due(${wanted.interval_ms}, ${wanted.heartbeat_ms}, ${wanted.limit}) as due`);
  return row?.due == null ? undefined : (JSON.parse(row.due) as CheckpointDue);
}

/** Stores a signed checkpoint. False: another process stored this number first; what it left out is due again. */
export async function commitCheckpoint(
  sql: Sql,
  { seq, at, covered_until, leaves }: CheckpointDue,
  envelope: JsonObject,
): Promise<boolean> {
  const [row] = await answered(sql<{ stored: boolean }[]>`
    select cs.commit_checkpoint(${seq}, ${at}::timestamptz, ${covered_until}::timestamptz, ${JSON.stringify(envelope)}::text::jsonb,
      ${JSON.stringify(leaves)}::text::jsonb) as stored`);
  return row?.stored === true;
}

/** Envelopes in the order of their numbers, after one of them. They name no run and belong to the installation. */
export async function listCheckpoints(
  sql: Sql,
  after: number,
  limit: number,
): Promise<{ seq: number; envelope: JsonObject }[]> {
  const rows = await answered(sql<{ seq: number; envelope: string }[]>`
    select seq, envelope::text from cs.checkpoint where seq > ${after} order by seq limit ${limit}`);
  return rows.map(({ seq, envelope }) => ({ seq, envelope: JSON.parse(envelope) as JsonObject }));
}
