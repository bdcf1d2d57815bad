import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ApiClient, createClient, type RunView } from '@counterstamp/api-contract';
import type { RunId, Service, Stage, State } from '@counterstamp/manifest-core';
import { connect, createApiKey, migrate, roleName, type Sql } from '@counterstamp/manifest-store';
import { type EffectView, type LedgerEntry, type RunningSandbox, startSandbox } from '@counterstamp/sandbox';
import { migrateQueue, openHintQueue, type QueueSettings } from '@counterstamp/stage-queue';
import { testIds } from './test-ids.ts';
import { type TestInstallation, testInstallation } from './test-installation.ts';

const WORKERS = ['preflight', 'executor', 'verifier', 'reconciler'] as const;

/** One service as a process of its own, as in production: the built code, its own login. */
export interface ServiceProcess {
  service: Service;
  port: number;
  child: ChildProcess;
  log: string;
  /** Resolves with the exit code, or the signal's name. */
  ended: Promise<number | string>;
}

export interface Fleet {
  apiUrl: string;
  sandbox: RunningSandbox;
  /** The keys that this fleet keeps outside its database. */
  installation: TestInstallation;
  /** What every service is configured with, the keys for effects left out. */
  environment: Readonly<Record<string, string>>;
  owner: Sql;
  requester: ApiClient;
  approver: ApiClient;
  keys: { requester: string; approver: string };
  processes: ServiceProcess[];
  /** Starts one more process of a service and waits until it is ready. */
  start(service: Service, env?: Record<string, string>): Promise<ServiceProcess>;
  /** Ends a process by a signal and waits for its end. */
  end(process: ServiceProcess, signal: NodeJS.Signals): Promise<number | string>;
  /** A coherent case at the sandbox, and the request that asks for its refund. */
  seed(change?: Record<string, unknown>): Promise<{ request_id: string; order_id: string; payment_id: string }>;
  request(seeded: { request_id: string; order_id: string }, change?: Record<string, unknown>): Promise<RunId>;
  /** Waits until the run is in one of the states; fails with its history otherwise. */
  until(run_id: RunId, states: readonly State[] | ((run: RunView) => boolean), boundMs?: number): Promise<RunView>;
  approve(run_id: RunId): Promise<void>;
  /** The same requests through another api process. */
  through(api: ServiceProcess): Pick<Fleet, 'request' | 'approve'>;
  ledger(payment_id: string): Promise<LedgerEntry[]>;
  effects(payment_id: string): Promise<EffectView[]>;
  fault(payment_id: string, fault: unknown): Promise<void>;
  /** Delivers one more hint of the run to a stage, under another job id than any before. */
  hintAgain(stage: Stage, run: { run_id: RunId; revision: number }): Promise<void>;
  stop(): Promise<void>;
}

/** Where a fleet runs: a database that it may migrate, and a Redis or none. */
export interface FleetOptions {
  /** The owner's URL of an empty or migrated database. */
  ownerUrl: string;
  /** Absent: BullMQ's Postgres backend. */
  redisUrl?: string;
  rolePrefix: string;
  secret: string;
  env?: Record<string, string>;
  /** Arguments of node; default: those that `up` gives. */
  execArgv?: readonly string[];
  /** What outlives a fleet: another one's keys, and a sandbox that stays when this fleet stops. */
  before?: Pick<Fleet, 'installation' | 'sandbox' | 'keys'>;
  /** API keys that are in the database already; default: new ones. */
  keys?: Fleet['keys'];
  /** Repository whose built code the processes run; default: this one's. */
  cwd?: string;
  /** Services of which a process is started at once, the api among them; default: all. */
  services?: readonly Service[];
}

/** Prepares a database for a fleet: tables, roles, the queue's schema. */
export async function prepareFleetDatabase(
  url: string,
  { rolePrefix, secret }: Pick<FleetOptions, 'rolePrefix' | 'secret'>,
): Promise<void> {
  await migrate(url, { rolePrefix, secret });
  await migrateQueue(url, { grantTo: (['api', ...WORKERS] as const).map((service) => roleName(rolePrefix, service)) });
}

/** Brings up a whole fleet of real processes on a prepared database, with a sandbox in this process. Needs `tsc -b` first. */
export async function startFleet(options: FleetOptions): Promise<Fleet> {
  const { sandbox = await startSandbox(), installation = testInstallation() } = options.before ?? {};
  const owner = connect(options.ownerUrl, { max: 2, applicationName: 'test-owner' });
  const logs = await mkdtemp(join(tmpdir(), 'cs-testing-fleet-'));
  const environment: Record<string, string> = {
    PATH: process.env.PATH ?? '',
    DATABASE_URL: options.ownerUrl,
    COUNTERSTAMP_SECRET: options.secret,
    COUNTERSTAMP_ROLE_PREFIX: options.rolePrefix,
    COUNTERSTAMP_PROFILE: 'fast',
    COUNTERSTAMP_DEV: '1',
    COUNTERSTAMP_HTTP_PORT: '0',
    COUNTERSTAMP_SHOP_URL: sandbox.url,
    COUNTERSTAMP_PAYMENTS_URL: sandbox.url,
    COUNTERSTAMP_PAYMENTS_READ_KEY: 'rk_sandbox',
    COUNTERSTAMP_CREDITS_URL: sandbox.url,
    COUNTERSTAMP_CREDITS_READ_KEY: 'rk_sandbox',
    ...installation.env,
    ...(options.redisUrl === undefined
      ? {}
      : { REDIS_URL: options.redisUrl, COUNTERSTAMP_QUEUE_PREFIX: `t${randomUUID().slice(0, 8)}` }),
    ...options.env,
  };
  const processes: ServiceProcess[] = [];

  const start: Fleet['start'] = async (service, env = {}) => {
    const log = join(logs, `${service}-${processes.length}.log`);
    const child = spawn(
      process.execPath,
      [
        ...(options.execArgv ?? ['--max-semi-space-size=2', ...(service === 'api' ? ['--optimize-for-size'] : [])]),
        'apps/cli/dist/main.js',
        'service',
        service,
      ],
      {
        env: {
          ...environment,
          ...(service === 'executor'
            ? { COUNTERSTAMP_PAYMENTS_WRITE_KEY: 'sk_sandbox', COUNTERSTAMP_CREDITS_WRITE_KEY: 'sk_sandbox' }
            : {}),
          ...env,
        },
        cwd: options.cwd,
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    const file = createWriteStream(log);
    const ended = once(child, 'exit').then(([code, signal]: (number | string | null)[]) => code ?? signal ?? 'unknown');
    const started: ServiceProcess = { service, port: 0, child, log, ended };
    processes.push(started);
    let text = '';
    started.port = await new Promise<number>((resolve, reject) => {
      let isReady = false;
      const onData = (data: Buffer) => {
        file.write(data);
        // Kept and searched until it is ready only: a long life says a lot.
        if (isReady) return;
        text += data.toString('utf8');
        const ready = /"port":(\d+).*"message":"ready for work"/.exec(text);
        isReady = ready !== null;
        if (ready !== null) resolve(Number(ready[1]));
      };
      child.stdout?.on('data', onData);
      child.stderr?.on('data', onData);
      child.once('exit', (code) => reject(new Error(`${service} ended with ${code} before it was ready:\n${text}`)));
      setTimeout(() => reject(new Error(`${service} was not ready within 20 s:\n${text}`)), 20_000).unref();
    });
    await poll(
      async () => (await fetch(`http://127.0.0.1:${started.port}/readyz`)).ok,
      20_000,
      `${service} did not become ready`,
    );
    return started;
  };

  await Promise.all((options.services ?? (['api', ...WORKERS] as const)).map((service) => start(service)));
  const apiUrl = `http://127.0.0.1:${processes.find((started) => started.service === 'api')?.port}`;
  const keyOf = async (role: 'requester' | 'approver') =>
    (await createApiKey(owner, testIds, { tenant_id: 'shop_north', name: role, role })).key;
  const keys = options.keys ??
    options.before?.keys ?? { requester: await keyOf('requester'), approver: await keyOf('approver') };
  const client = (key: string) => createClient({ baseUrl: apiUrl, key, fetch });
  const requester = client(keys.requester);
  const approver = client(keys.approver);

  const admin = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const response = await fetch(`${sandbox.url}${path}`, {
      method,
      ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return await response.json();
  };

  const until: Fleet['until'] = async (run_id, states, boundMs = 25_000) => {
    let seen: RunView | undefined;
    const reached = (run: RunView) => (typeof states === 'function' ? states(run) : states.includes(run.state));
    try {
      await poll(
        async () => {
          seen = await requester.getRun(run_id);
          return reached(seen);
        },
        boundMs,
        'state not reached',
      );
    } catch (error) {
      const { events } = await requester.runEvents(run_id);
      const history = events
        .map((event) => `${event.revision} ${event.from ?? '-'} → ${event.to} (${event.trigger}) ${event.actor}`)
        .join('\n');
      throw new Error(
        `${run_id} is ${seen?.state} ${JSON.stringify(seen?.stop_reason)}, wanted ${String(states)}\n${history}\nlogs: ${logs}`,
        { cause: error },
      );
    }
    if (seen === undefined) throw new Error('unreachable: polled');
    return seen;
  };

  const through = (baseUrl: string): Pick<Fleet, 'request' | 'approve'> => ({
    async request(seeded, change = {}) {
      const created = await createClient({ baseUrl, key: keys.requester, fetch }).createRun({
        request_id: seeded.request_id,
        input: {
          order_id: seeded.order_id,
          requested_amount_minor: 4200,
          currency: 'USD',
          reason: 'item arrived damaged',
        },
        ...change,
      });
      return created.run_id;
    },
    async approve(run_id) {
      const { approval } = await until(run_id, ['awaiting_approval']);
      if (approval === null) throw new Error('nothing to approve');
      const { approval_id, approval_digest, action_digest, action_revision } = approval;
      const body = { approval_id, approval_digest, action_digest, action_revision, decision: 'approve' as const };
      await createClient({ baseUrl, key: keys.approver, fetch }).decide(run_id, body);
    },
  });

  return {
    apiUrl,
    sandbox,
    installation,
    environment,
    owner,
    requester,
    approver,
    keys,
    processes,
    start,
    async end(started, signal) {
      started.child.kill(signal);
      return await started.ended;
    },
    async seed(change = {}) {
      const id = randomUUID().slice(0, 12);
      const seeded = { request_id: `case_${id}`, order_id: `order_${id}`, payment_id: `pay_${id}`, ...change };
      await admin('POST', '/admin/cases', { tenant_id: 'shop_north', amount_minor: 4200, currency: 'USD', ...seeded });
      return seeded;
    },
    ...through(apiUrl),
    through: (api) => through(`http://127.0.0.1:${api.port}`),
    until,
    ledger: async (payment_id) =>
      ((await admin('GET', `/admin/ledger?payment_id=${payment_id}`)) as { entries: LedgerEntry[] }).entries,
    effects: async (payment_id) =>
      ((await admin('GET', `/admin/effects?payment_id=${payment_id}`)) as { effects: EffectView[] }).effects,
    async fault(payment_id, fault) {
      await admin('PUT', `/admin/faults/${payment_id}`, fault);
    },
    async hintAgain(stage, { run_id, revision }) {
      const settings: QueueSettings =
        options.redisUrl === undefined
          ? { backend: 'postgres', url: options.ownerUrl }
          : { backend: 'redis', url: options.redisUrl, prefix: environment.COUNTERSTAMP_QUEUE_PREFIX ?? '' };
      const queue = openHintQueue(settings, { onError: () => undefined });
      // The revision names the job; the worker reloads the run whatever it says.
      const sent = await queue.hint(stage, { run_id, revision: revision + 1_000 });
      await queue.close();
      if (sent !== 'queued') throw new Error(`hint not sent: ${sent.reason}`);
    },
    async stop() {
      for (const started of processes) started.child.kill('SIGTERM');
      await Promise.all(
        processes.map((started) =>
          Promise.race([started.ended, new Promise((resolve) => setTimeout(resolve, 10_000).unref())]).then(() =>
            started.child.kill('SIGKILL'),
          ),
        ),
      );
      if (options.before === undefined) await sandbox.close();
      await owner.end({ timeout: 2 });
    },
  };
}

/** Asks until the answer is yes, every 25 ms, for at most `boundMs`. */
export async function poll(ask: () => Promise<boolean>, boundMs: number, otherwise: string): Promise<void> {
  const until = Date.now() + boundMs;
  for (;;) {
    if (await ask().catch(() => false)) return;
    if (Date.now() > until) throw new Error(`${otherwise} within ${boundMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}
