import { createHash, randomBytes } from 'node:crypto';
import postgres from 'postgres';

/** Milliseconds that a worker waits for another one to prepare a template. */
const TEMPLATE_WAIT_MS = 120_000;

/** A database of its own, for one test file. */
export interface TestDatabase {
  /** The owner's URL. */
  url: string;
  /** Name of the database. */
  name: string;
  /** Drops it, closing what is still connected. At the end of the run all are dropped anyway. */
  drop: () => Promise<void>;
}

/**
 * Clones the template `template`, made by `prepare` when this run has none yet. Workers on one server wait for each other, so
 * `prepare` succeeds once per run; when it throws, nothing is kept and the next caller tries again.
 */
export async function cloneTemplate(
  serverUrl: string,
  options: { runId: string; template: string; prepare: (url: string) => Promise<void> },
): Promise<TestDatabase> {
  const { runId } = options;
  const template = `cs_test_tpl_${runId}_${createHash('sha256').update(options.template).digest('hex').slice(0, 12)}`;
  const name = `cs_test_${runId}_${randomBytes(6).toString('hex')}`;
  const sql = connect(serverUrl);
  try {
    // A session lock: one connection holds it while `prepare` works on others.
    await sql`select set_config('lock_timeout', ${String(TEMPLATE_WAIT_MS)}, false)`;
    await sql`select pg_advisory_lock(hashtextextended(${template}, 0))`;
    const made = await sql`select 1 from pg_database where datname = ${template}`;
    if (made.length === 0) await makeTemplate(sql, serverUrl, template, options.prepare);
    await sql`select pg_advisory_unlock(hashtextextended(${template}, 0))`;
    await sql`create database ${sql(name)} template ${sql(template)}`;
  } finally {
    await sql.end({ timeout: 5 });
  }
  return { url: databaseUrl(serverUrl, name), name, drop: () => dropDatabases(serverUrl, [name]) };
}

/** Drops every database that run `runId` made on this server. */
export async function dropTestDatabases(serverUrl: string, runId: string): Promise<void> {
  const sql = connect(serverUrl);
  try {
    const rows = await sql<{ datname: string }[]>`
      select datname from pg_database
      where starts_with(datname, ${`cs_test_${runId}_`}) or starts_with(datname, ${`cs_test_tpl_${runId}_`})`;
    for (const { datname } of rows) await dropDatabase(sql, datname);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

async function makeTemplate(
  sql: postgres.Sql,
  serverUrl: string,
  template: string,
  prepare: (url: string) => Promise<void>,
): Promise<void> {
  // Renamed only when finished: a worker that is killed in `prepare` must not leave something that looks like a template.
  const unfinished = `${template}_new`;
  await dropDatabase(sql, unfinished);
  await sql`create database ${sql(unfinished)}`;
  try {
    await prepare(databaseUrl(serverUrl, unfinished));
    await sql`alter database ${sql(unfinished)} with allow_connections false`;
    // A closed client's session may linger for a moment, and one that `prepare` forgot would block every clone.
    await sql`select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = ${unfinished}`;
    await sql`alter database ${sql(unfinished)} rename to ${sql(template)}`;
  } catch (error) {
    await dropDatabase(sql, unfinished);
    throw error;
  }
}

async function dropDatabases(serverUrl: string, names: readonly string[]): Promise<void> {
  const sql = connect(serverUrl);
  try {
    for (const name of names) await dropDatabase(sql, name);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

async function dropDatabase(sql: postgres.Sql, name: string): Promise<void> {
  await sql`drop database if exists ${sql(name)} with (force)`;
}

function connect(url: string): postgres.Sql {
  return postgres(url, { max: 1, onnotice: () => {}, connect_timeout: 30 });
}

function databaseUrl(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}
