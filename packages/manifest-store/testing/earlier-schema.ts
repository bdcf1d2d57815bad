import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { drizzle } from 'drizzle-orm/postgres-js';
import { migrate } from 'drizzle-orm/postgres-js/migrator';
import postgres from 'postgres';

const MIGRATIONS = fileURLToPath(new URL('../migrations', import.meta.url));

interface Journal {
  entries: { tag: string }[];
}

/** Names of this version's migrations, oldest first. */
export async function migrationTags(): Promise<string[]> {
  return (await readJournal(MIGRATIONS)).entries.map(({ tag }) => tag);
}

/** Brings an empty database to the tables and functions of an earlier release: the first `count` migrations, and no grants. */
export async function migrateToEarlier(ownerUrl: string, count: number): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'cs-earlier-'));
  const sql = postgres(ownerUrl, { max: 1, onnotice: () => undefined });
  try {
    await cp(MIGRATIONS, folder, { recursive: true });
    const journal = await readJournal(folder);
    await writeFile(journalOf(folder), JSON.stringify({ ...journal, entries: journal.entries.slice(0, count) }));
    await migrate(drizzle({ client: sql }), { migrationsFolder: folder, migrationsSchema: 'cs_migrations' });
  } finally {
    await sql.end({ timeout: 2 });
    await rm(folder, { recursive: true });
  }
}

function journalOf(folder: string): string {
  return path.join(folder, 'meta/_journal.json');
}

async function readJournal(folder: string): Promise<Journal> {
  return JSON.parse(await readFile(journalOf(folder), 'utf8')) as Journal;
}
