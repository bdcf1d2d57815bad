import { type ChainFault, type RunId, runIdFromUuid, type StoredEvent, verifyChain } from '@counterstamp/manifest-core';
import type { Sql } from './connection.ts';

export interface HistoryReport {
  run_id: RunId;
  events: number;
  /** When the personal values of the run were erased; what was committed to them is verified as before. */
  erased_at: string | null;
  faults: (
    | ChainFault
    | { kind: 'action_changed'; action_revision: number }
    /** The row says something that its events do not. */
    | { kind: 'snapshot_differs'; field: string }
  )[];
}

/**
 * Re-computes the event chains (all, or one run's) and the digests of the stored actions, and compares each run's row with the fold of its events,
 * page by page. Yields one report per run. What it does not look at yet: the values of evidence, proposals and the texts of approvals.
 * Needs a login that may read `cs.run`, `cs.run_event`, `cs.action`, `cs.run_input` and `cs.subject_key`.
 */
export async function* verifyHistory(sql: Sql, only?: RunId): AsyncGenerator<HistoryReport> {
  const PAGE = 200;
  let after = '00000000-0000-0000-0000-000000000000';
  for (;;) {
    const rows = await sql<
      {
        run_id: string;
        chain_head: string;
        erased_at: string | null;
        snapshot: string;
        events: string;
        changed: number[];
      }[]
    >`
      select r.run_id, r.chain_head, to_jsonb(r)::text as snapshot,
        (select cs.iso(k.erased_at) from cs.run_input i join cs.subject_key k using (subject)
          where i.run_id = r.run_id and i.sealed is not null and k.tenant_id = r.tenant_id) as erased_at,
        coalesce((select json_agg(json_build_object('run_id', 'run_' || e.run_id, 'revision', e.revision, 'from', e.from_state, 'to', e.to_state, 'trigger', e.trigger,
          'actor', e.actor, 'at_us', cs.microseconds(e.at)::text, 'payload', e.payload, 'payload_digest', e.payload_digest, 'previous_hash', e.previous_hash,
          'hash', e.hash) order by e.revision)::text from cs.run_event e where e.run_id = r.run_id), '[]') as events,
        coalesce((select json_agg(a.action_revision) from cs.action a
          where a.run_id = r.run_id and (cs.tagged_digest('cs.action.v1', a.action_canonical) <> a.action_digest or a.action <> a.action_canonical::jsonb
            or not exists (select from cs.run_event e where e.run_id = r.run_id and e.revision = a.action_revision
                            and e.payload::jsonb -> 'refs' ->> 'action_digest' = a.action_digest))), '[]') as changed
      from cs.run r where ${only === undefined ? sql`r.run_id > ${after}::uuid` : sql`r.run_id = ${only.slice(4)}::uuid`}
      order by r.run_id limit ${PAGE}`;
    for (const row of rows) {
      const events = JSON.parse(row.events) as StoredEvent[];
      const faults: HistoryReport['faults'] = verifyChain(events, row.chain_head);
      faults.push(...snapshotFaults(events, JSON.parse(row.snapshot) as Record<string, unknown>));
      for (const action_revision of row.changed) faults.push({ kind: 'action_changed', action_revision });
      yield { run_id: runIdFromUuid(row.run_id), events: events.length, erased_at: row.erased_at, faults };
      after = row.run_id;
    }
    if (only !== undefined || rows.length < PAGE) return;
  }
}

/** Columns that the first event states, or a later one sets, and in which the row says something else. */
function snapshotFaults(
  events: readonly StoredEvent[],
  row: Readonly<Record<string, unknown>>,
): HistoryReport['faults'] {
  const folded: Record<string, unknown> = {};
  for (const event of events)
    Object.assign(folded, (JSON.parse(event.payload) as { set: Record<string, unknown> }).set);
  return Object.entries(folded)
    .filter(([field, value]) => comparable(field, row[field] ?? null) !== comparable(field, value ?? null))
    .map(([field]) => ({ kind: 'snapshot_differs', field }));
}

/** One spelling for a value: the database writes an instant in more than one way. */
function comparable(field: string, value: unknown): string {
  const instant = (field.endsWith('_at') || field.endsWith('_deadline')) && typeof value === 'string';
  return instant ? String(Date.parse(value)) : JSON.stringify(value);
}
