import {
  assertSchemaCompatibility,
  LATEST_SCHEMA_VERSION,
  SchemaMigrationRequiredError,
  SchemaVersionMismatchError,
} from 'bullmq';
import { Client } from 'pg';
import { systemTimers, type Timers } from './ports/timers.ts';
import { QUEUE_SCHEMA } from './postgres-backend.ts';
import { within } from './within.ts';

export type PostgresQueueCheck =
  | { kind: 'ok'; version: number }
  | {
      kind: 'refused';
      code: 'queue.postgres_unreachable' | 'queue.not_migrated' | 'queue.not_granted' | 'queue.schema_newer';
      message: string;
    };

/** Longest check, milliseconds. */
const CHECK_MAX_MS = 5_000;

/** SQLSTATE of a login that may not do what it tries. */
const NOT_PERMITTED = '42501';

/** Rights that `migrateQueue` grants and this login lacks, each as `right on object`. CASE, since Postgres may ask conditions in any order. */
const LACKING = `
  select 'usage on schema ' || n.nspname as lacking from pg_namespace n where n.nspname = $1 and not has_schema_privilege(n.oid, 'usage')
  union all
  select p || ' on ' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace, unnest('{select,insert,update,delete}'::text[]) p
   where n.nspname = $1 and c.relkind in ('r', 'p') and not has_table_privilege(c.oid, p)
  union all
  select 'usage on ' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where n.nspname = $1 and case when c.relkind = 'S' then not has_sequence_privilege(c.oid, 'usage') else false end
  union all
  select 'execute on ' || f.proname from pg_proc f join pg_namespace n on n.oid = f.pronamespace
   where n.nspname = $1 and not has_function_privilege(f.oid, 'execute')
  order by 1`;

/**
 * Looks once, as one service's login, whether BullMQ's tables in Postgres can carry the queues. Changes nothing. Each refusal is a sentence
 * that says how to repair it and does not contain the URL's password. Never rejects; takes at most 5 s.
 */
export async function checkPostgresQueue(
  url: string,
  options: { schema?: string; timers?: Timers } = {},
): Promise<PostgresQueueCheck> {
  const schema = options.schema ?? QUEUE_SCHEMA;
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: CHECK_MAX_MS,
    query_timeout: CHECK_MAX_MS,
    options: '-c default_transaction_read_only=on',
    application_name: 'counterstamp doctor',
  });
  // A connection that breaks while idle emits an event; without a listener that ends the process. The next query rejects.
  client.on('error', () => {});
  try {
    const answer = await within(options.timers ?? systemTimers, CHECK_MAX_MS, look(client, schema));
    if (answer.kind === 'done') return answer.value;
    return refuse(
      'queue.postgres_unreachable',
      `Postgres did not answer within ${CHECK_MAX_MS / 1_000} s. Check that it runs and that no firewall drops the connection.`,
    );
  } catch (error) {
    return refusalOf(error, schema);
  } finally {
    client.end().catch(() => undefined);
  }
}

async function look(client: Client, schema: string): Promise<PostgresQueueCheck> {
  await client.connect();
  const queryable = {
    query: async <R>(text: string, params?: readonly unknown[]) => {
      const result = await client.query(text, params === undefined ? undefined : [...params]);
      return { rows: result.rows as R[], rowCount: result.rowCount };
    },
  };
  const version = await assertSchemaCompatibility(queryable, schema);
  if (version < LATEST_SCHEMA_VERSION) {
    return refuse(
      'queue.not_migrated',
      `The queues' schema ${schema} is at version ${version} of ${LATEST_SCHEMA_VERSION}. Run \`counterstamp migrate\` as the database's owner, without REDIS_URL.`,
    );
  }
  const { rows } = await client.query<{ lacking: string }>(LACKING, [schema]);
  if (rows.length > 0) return notGranted(rows.map((row) => row.lacking));
  return { kind: 'ok', version };
}

function refusalOf(error: unknown, schema: string): PostgresQueueCheck {
  if (error instanceof SchemaMigrationRequiredError) {
    return refuse(
      'queue.not_migrated',
      `This database has no queues' schema ${schema} yet. Run \`counterstamp migrate\` as its owner, without REDIS_URL.`,
    );
  }
  if (error instanceof SchemaVersionMismatchError) {
    return refuse('queue.schema_newer', `${error.message} Install the version of Counterstamp that migrated it.`);
  }
  if (error instanceof Error && 'code' in error && error.code === NOT_PERMITTED) return notGranted([error.message]);
  const why = error instanceof Error ? error.message : String(error);
  return refuse(
    'queue.postgres_unreachable',
    `The queues in Postgres cannot be used: ${why}. Start it, or correct the login's URL.`,
  );
}

function notGranted(lacking: readonly string[]): PostgresQueueCheck {
  const shown = lacking.slice(0, 3).join(', ');
  const more = lacking.length > 3 ? ` and ${lacking.length - 3} more` : '';
  return refuse(
    'queue.not_granted',
    `The login may not use the queues' tables (${shown}${more}). Run \`counterstamp migrate\` as the database's owner, without REDIS_URL.`,
  );
}

function refuse(code: Extract<PostgresQueueCheck, { kind: 'refused' }>['code'], message: string): PostgresQueueCheck {
  return { kind: 'refused', code, message };
}
