import { randomBytes } from 'node:crypto';
import { link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { CliFailure, EXIT } from '../failure.ts';
import { lives, ownIdentity } from './process-identity.ts';

/** Where `up` keeps its state when nobody says otherwise, below the current folder. */
export const STATE_DEFAULT = '.counterstamp';

const Variables = z.record(z.string(), z.string());

/** What a running fleet tells other commands on the same machine. Holds passwords: readable by its owner only. */
export const FleetFile = z.object({
  pid: z.int().positive(),
  started: z.string(),
  api_url: z.string().optional(),
  /** Origin of the console, to which passkeys belong. */
  origin: z.string().optional(),
  sandbox_url: z.string().optional(),
  profile: z.string().optional(),
  owner_url: z.string().optional(),
  /** The variables that each service of this fleet was given, so that one more can join. */
  services: z.record(z.string(), Variables).optional(),
});
export type FleetFile = z.infer<typeof FleetFile>;

const TenantKeys = z.record(z.string(), z.string());
/** Demo keys by tenant and by name. */
export const DemoKeys = z.record(z.string(), TenantKeys);
export type DemoKeys = z.infer<typeof DemoKeys>;

/** Files of one state folder. */
export interface StateFolder {
  dir: string;
  postgres: string;
  logs: string;
  keys: string;
  request: string;
  /** Keys that must outlive the database: without them no passkey counts and nothing sealed opens. */
  installation: string;
  /** Public halves of the signing keys: what a verifier of receipts is given. */
  trusted_keys: string;
}

export function stateFolder(dir: string): StateFolder {
  const root = path.resolve(dir);
  const at = (name: string) => path.join(root, name);
  return {
    dir: root,
    postgres: at('postgres'),
    logs: at('logs'),
    keys: at('keys.json'),
    request: at('refund.json'),
    installation: at('installation.json'),
    trusted_keys: at('trusted-keys.json'),
  };
}

/** Makes the folder if needed. Others may pass through it (Postgres runs as another user when we are root), not list it. */
export async function makeStateFolder(folder: StateFolder): Promise<void> {
  try {
    await mkdir(folder.dir, { recursive: true, mode: 0o711 });
    await mkdir(folder.logs, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new CliFailure(
      `The state folder ${folder.dir} cannot be made: ${error instanceof Error ? error.message : String(error)}.`,
      'Name one that you may write with --state DIR.',
    );
  }
}

/** This process's hold on a state folder. */
export interface Claim {
  /** Tells other commands about the fleet. */
  publish(facts: Omit<FleetFile, 'pid' | 'started'>): Promise<void>;
  release(): Promise<void>;
}

/**
 * Claims the folder for this process; what a killed one left is taken over.
 * @throws {CliFailure} naming the process that holds it.
 */
export async function claimStateFolder(folder: StateFolder): Promise<Claim> {
  const file = path.join(folder.dir, 'fleet.json');
  const mark = await ownIdentity();
  const fresh = `${file}.${process.pid}`;
  await writePrivate(fresh, JSON.stringify(mark));
  try {
    for (let tries = 0; ; tries++) {
      try {
        await link(fresh, file); // Fails when it exists: of two that start at once, one wins.
        break;
      } catch (error) {
        if (!hasCode(error, 'EEXIST')) throw error;
      }
      const other = await readFleetFile(file);
      if ((other !== undefined && (await lives(other))) || tries >= 3) {
        const who = other === undefined ? 'another process' : `the process with pid ${other.pid}`;
        throw new CliFailure(
          `The state folder ${folder.dir} is in use by ${who}.`,
          'Stop that `counterstamp up` first, or start this one with another --state DIR.',
        );
      }
      await rm(file, { force: true });
    }
  } finally {
    await rm(fresh, { force: true });
  }
  return {
    publish: (facts) => replacePrivate(file, `${JSON.stringify({ ...mark, ...facts }, null, 2)}\n`),
    release: () => rm(file, { force: true }),
  };
}

/** The fleet that runs on a state folder now. */
export async function runningFleet(folder: StateFolder): Promise<FleetFile | undefined> {
  const found = await readFleetFile(path.join(folder.dir, 'fleet.json'));
  return found !== undefined && (await lives(found)) ? found : undefined;
}

async function readFleetFile(file: string): Promise<FleetFile | undefined> {
  return parsed(FleetFile, await readFile(file, 'utf8').catch(() => ''));
}

/** The secret of this installation, made on first use. The services' passwords are derived from it. */
export async function keptSecret(folder: StateFolder): Promise<string> {
  const file = path.join(folder.dir, 'secret');
  const kept = (await readFile(file, 'utf8').catch(() => '')).trim();
  if (kept.length >= 16) return kept;
  const secret = randomBytes(32).toString('base64url');
  await replacePrivate(file, `${secret}\n`);
  return secret;
}

export async function readDemoKeys(folder: StateFolder): Promise<DemoKeys> {
  return parsed(DemoKeys, await readFile(folder.keys, 'utf8').catch(() => '')) ?? {};
}

export async function writeDemoKeys(folder: StateFolder, keys: DemoKeys): Promise<void> {
  await replacePrivate(folder.keys, `${JSON.stringify(keys, null, 2)}\n`);
}

/** Replaces a file as a whole: a reader sees the old text or the new one. Only the owner may read it. */
export async function replacePrivate(file: string, text: string): Promise<void> {
  const fresh = `${file}.${process.pid}.new`;
  await writePrivate(fresh, text);
  await rename(fresh, file);
}

async function writePrivate(file: string, text: string): Promise<void> {
  await rm(file, { force: true });
  try {
    await writeFile(file, text, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    throw new CliFailure(
      `${file} cannot be written: ${error instanceof Error ? error.message : String(error)}.`,
      'Name a folder that you may write with --state DIR.',
      EXIT.refused,
    );
  }
}

function parsed<T>(schema: z.ZodType<T>, text: string): T | undefined {
  try {
    return schema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined; // Absent, or half-written by a process that was killed.
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
