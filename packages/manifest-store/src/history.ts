import { type ChainFault, type RunId, runIdFromUuid, type StoredEvent, verifyChain } from '@counterstamp/manifest-core';
import type { Sql } from './connection.ts';

export interface HistoryReport {
  run_id: RunId;
  events: number;
  faults: (ChainFault | { kind: 'action_changed'; action_revision: number })[];
}

/**
 * Re-computes the event chains (all, or one run's) and the digests of the stored actions, page by page. Yields one report per run.
 * Needs a login that may read `cs.run`, `cs.run_event` and `cs.action`.
 */
export async function* verifyHistory(sql: Sql, only?: RunId): AsyncGenerator<HistoryReport> {
  const PAGE = 200;
  let after = '00000000-0000-0000-0000-000000000000';
  for (;;) {
    const rows = await sql<{ run_id: string; chain_head: string; events: string; changed: number[] }[]>`
      select r.run_id, r.chain_head,
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
      for (const action_revision of row.changed) faults.push({ kind: 'action_changed', action_revision });
      yield { run_id: runIdFromUuid(row.run_id), events: events.length, faults };
      after = row.run_id;
    }
    if (only !== undefined || rows.length < PAGE) return;
  }
}
