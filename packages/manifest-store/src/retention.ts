import { answered, type Sql } from './connection.ts';

/**
 * What may go after a time. `evidence`: the personal data of cases (subjects that are their request's id) whose runs have all ended that long ago; the rest: rows that stopped
 * to matter (ended or used up) that long ago. Events, decisions and audit events are the record itself and no class.
 */
export const RETENTION_CLASSES = ['evidence', 'sessions', 'challenges', 'invitations'] as const;
export type RetentionClass = (typeof RETENTION_CLASSES)[number];

export interface RetentionCount {
  class: RetentionClass;
  days: number;
  /** Everything older than this, by the database's clock. */
  before: string;
  /** Subjects or rows that are due; after `apply`, that are gone. */
  count: number;
}

/** Rows that one statement takes at most: each is one short transaction beside a running fleet. */
const BATCH = 500;

/** Statements of one call: what is left after them waits for the next one. */
const BATCHES_MAX = 10_000;

/**
 * Counts what is older than it is to be kept, or lets it go, in batches, as the database's owner.
 * @param keep days to keep, by class; a class that is not named is left alone.
 */
export async function retain(
  sql: Sql,
  keep: Partial<Record<RetentionClass, number>>,
  options: { apply: boolean },
): Promise<RetentionCount[]> {
  const counts: RetentionCount[] = [];
  for (const name of RETENTION_CLASSES) {
    const days = keep[name];
    if (days === undefined) continue;
    const [row] = await answered(
      sql<{ before: string }[]>`select cs.iso(cs.clock() - make_interval(days => ${days})) as before`,
    );
    if (row === undefined) throw new Error('the database told no time');
    const { before } = row;
    const count = options.apply ? await inBatches(() => letGo(sql, name, before)) : await countDue(sql, name, before);
    counts.push({ class: name, days, before, count });
  }
  return counts;
}

/** Repeats until a batch found nothing any more. */
async function inBatches(batch: () => Promise<number>): Promise<number> {
  let sum = 0;
  for (let n = 0; n < BATCHES_MAX; n++) {
    const gone = await batch();
    if (gone === 0) return sum;
    sum += gone;
  }
  return sum;
}

/**
 * Subjects of one case (the subject is the request id), all of whose runs ended before that time. One without any run may be about to get its
 * first; one that stands for a person may ask again tomorrow, and erasure is for good: that is `erase`'s, by name.
 */
const dueSubjects = (sql: Sql, before: string) => sql`
  from cs.subject_key k where k.erased_at is null
   and exists (select from cs.run_input i join cs.run r using (run_id) where i.subject = k.subject and r.tenant_id = k.tenant_id)
   and not exists (select from cs.run_input i join cs.run r using (run_id) where i.subject = k.subject and r.tenant_id = k.tenant_id and r.request_id <> k.subject)
   and not exists (select from cs.run_input i join cs.run r using (run_id) where i.subject = k.subject and r.tenant_id = k.tenant_id
     and (r.state not in ('completed', 'rejected', 'expired', 'failed') or r.state_since >= ${before}::timestamptz))`;

/** The table of a class, and since when one of its rows no longer matters. */
const dueRows = (sql: Sql, name: Exclude<RetentionClass, 'evidence'>, before: string) => {
  switch (name) {
    case 'sessions':
      return sql`cs.session t where least(t.expires_at, t.revoked_at) < ${before}::timestamptz`;
    case 'challenges':
      return sql`cs.challenge t where least(t.expires_at, t.consumed_at) < ${before}::timestamptz`;
    case 'invitations':
      return sql`cs.invitation t where least(t.expires_at, t.consumed_at) < ${before}::timestamptz`;
  }
};

async function countDue(sql: Sql, name: RetentionClass, before: string): Promise<number> {
  const rows = name === 'evidence' ? dueSubjects(sql, before) : sql`from ${dueRows(sql, name, before)}`;
  const [row] = await answered(sql<{ count: number }[]>`select count(*)::int as count ${rows}`);
  return row?.count ?? 0;
}

/** One batch; how many it let go. */
async function letGo(sql: Sql, name: RetentionClass, before: string): Promise<number> {
  if (name !== 'evidence') {
    const due = dueRows(sql, name, before);
    const table = { sessions: sql`cs.session`, challenges: sql`cs.challenge`, invitations: sql`cs.invitation` }[name];
    const gone = await answered(sql`
      delete from ${table} d where d.ctid = any (array(select t.ctid from ${due} limit ${BATCH} for update skip locked))`);
    return gone.count;
  }
  const [row] = await answered(sql<{ count: number }[]>`
    with due as materialized (select k.tenant_id, k.subject ${dueSubjects(sql, before)} limit ${BATCH})
    select (count(*) filter (where e.result = 'erased'))::int as count from due, cs.erase_subject(due.tenant_id, due.subject, false, true) e`);
  return row?.count ?? 0;
}
