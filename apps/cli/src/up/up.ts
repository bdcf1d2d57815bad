import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { EXIT } from '../failure.ts';
import { type Environment, parseUpConfig, type UpConfig } from './config.ts';
import { offerDemoRequest } from './demo-request.ts';
import { installationKeys } from './installation-keys.ts';
import { Interrupted, listenForInterrupt } from './interrupt.ts';
import { anyFreePort, apiPort } from './ports.ts';
import { startLocalPostgres } from './postgres.ts';
import { prepare } from './prepare.ts';
import { recordEnd } from './record-end.ts';
import {
  databaseVariable,
  FLEET,
  type FleetService,
  type FleetSettings,
  serviceEnvironment,
  serviceVariables,
} from './service-environment.ts';
import {
  type Claim,
  claimStateFolder,
  keptSecret,
  makeStateFolder,
  readDemoKeys,
  type StateFolder,
  stateFolder,
  writeDemoKeys,
} from './state-folder.ts';
import { MAIN, type SupervisedProcess, superviseProcess } from './supervised-process.ts';
import type { Terminal } from './terminal.ts';

/** Keys that the sandbox's provider takes (apps/sandbox/README.md). */
const SANDBOX_READ_KEY = 'rk_sandbox';
const SANDBOX_WRITE_KEY = 'sk_sandbox';

/** Milliseconds for a service's drain by profile: its own grace and what closing its connections takes. */
const DRAIN_MS: Readonly<Record<string, number>> = { fast: 10_000, production: 32_000 };
const DRAIN_DEFAULT_MS = 32_000;
/** Milliseconds for the sandbox: it cuts what still waits after 1 s. */
const SANDBOX_DRAIN_MS = 5_000;

export interface UpOptions {
  state: string;
  port: number | undefined;
  tour: 'then_stay' | 'only' | 'none';
  /** File that the tour's table is written to. */
  tourReport: string | undefined;
  /** Start with every dispatch on hold. */
  hold: boolean;
  /** Processes of each service. */
  counts: Readonly<Record<Exclude<FleetService, 'api'>, number>>;
}

/** What to undo at the end, last first. */
type Undo = () => Promise<void>;

/**
 * Runs a whole fleet on this machine until it is told to end (or until the tour is over).
 * @returns the exit code.
 * @throws {CliFailure} when it cannot start. Whatever happens, nothing of it is left running.
 */
export async function up(options: UpOptions, env: Environment, terminal: Terminal): Promise<number> {
  const config = parseUpConfig(env);
  const folder = stateFolder(options.state);
  await makeStateFolder(folder);
  const claim = await claimStateFolder(folder);
  const interrupt = listenForInterrupt();
  const undo: Undo[] = [() => claim.release()];
  const processes: SupervisedProcess[] = [];
  let exit: number = EXIT.ok;
  let failure: unknown;
  try {
    const { signal } = interrupt;
    const fleet = await startFleet({ options, env, config, folder, claim, terminal, signal, undo, processes });
    if (options.tour !== 'none') exit = await runTour(folder, config, options, fleet, signal, terminal);
    if (options.tour !== 'only' && !signal.aborted) {
      terminal.line(farewellText(fleet, folder, config.profile));
      await once(signal, 'abort');
    }
  } catch (error) {
    if (!(error instanceof Interrupted)) failure = error;
    else if (options.tour === 'only') exit = EXIT.refused;
  }
  interrupt.onImpatience(() => {
    for (const one of processes) one.kill();
  });
  if (undo.length > 1) terminal.line('Ending the fleet …');
  for (const step of undo.toReversed()) {
    try {
      await step();
    } catch (error) {
      terminal.notice(error instanceof Error ? error.message : String(error));
      exit = EXIT.refused;
    }
  }
  if (undo.length > 1) terminal.line('Everything has ended.');
  interrupt.dispose();
  if (failure !== undefined) throw failure;
  return exit;
}

interface Start {
  options: UpOptions;
  env: Environment;
  config: UpConfig;
  folder: StateFolder;
  claim: Claim;
  terminal: Terminal;
  signal: AbortSignal;
  undo: Undo[];
  /** Every process that was started. */
  processes: SupervisedProcess[];
}

interface Fleet {
  api_url: string;
  sandbox_url: string;
  /** `name http://…/metrics` of each service process. */
  metrics: string[];
  /** What is on hold, as a person reads it; empty when nothing is. */
  on_hold: string;
}

async function startFleet(start: Start): Promise<Fleet> {
  const { options, env, config, folder, claim, terminal, signal, undo, processes } = start;
  terminal.line(`counterstamp: state in ${shown(folder.dir)}`);
  const embedded = config.database_url === undefined;
  const postgres = embedded
    ? await terminal.step(
        'postgres',
        () => startLocalPostgres(folder.postgres, signal, terminal.notice),
        ({ source, port }) => `embedded on port ${port}, from ${source}`,
      )
    : undefined;
  if (postgres !== undefined) undo.push(() => postgres.stop());
  const owner_url = postgres?.url ?? config.database_url ?? '';

  const sandbox_port = await anyFreePort();
  const sandbox_url = `http://127.0.0.1:${sandbox_port}`;
  const sandbox = superviseProcess(
    {
      name: 'sandbox',
      service: 'sandbox',
      log_file: path.join(folder.logs, 'sandbox.log'),
      port: () => Promise.resolve(sandbox_port),
      environment: (port) => ({ PATH: env.PATH, SANDBOX_PORT: String(port), SANDBOX_HOST: '127.0.0.1' }),
      drain_ms: SANDBOX_DRAIN_MS,
    },
    terminal.notice,
  );
  processes.push(sandbox);
  undo.push(() => sandbox.stop());

  const kept = await readDemoKeys(folder);
  const prepared = await terminal.step(
    'database',
    async () =>
      prepare(
        {
          owner_url,
          embedded,
          role_prefix: config.role_prefix,
          secret: config.secret ?? (await keptSecret(folder)),
          redis_url: config.redis_url,
          queue_prefix: config.queue_prefix,
          given_urls: embedded ? {} : givenUrls(env),
          keys: kept,
          hold: options.hold,
        },
        signal,
      ),
    (done) =>
      `${done.database} on PostgreSQL ${done.server_version.split(' ')[0]}, ${done.migrations.length} migrations applied, hints over ${done.redis ?? 'Postgres'}`,
  );
  await writeDemoKeys(folder, prepared.keys);
  const on_hold = prepared.holds.map(({ scope, reason }) => `${scope} (${reason})`).join(', ');
  if (on_hold !== '') {
    terminal.notice(`On hold: ${on_hold}. Runs go as far as their approval and wait there; nothing is sent.`);
  }
  await terminal.step(
    'sandbox',
    () => sandbox.ready(signal),
    () => `shop and payment provider at ${sandbox_url}`,
  );

  const keys = await installationKeys(folder, env);
  const api_port = await apiPort(options.port, env.COUNTERSTAMP_HTTP_HOST ?? '127.0.0.1');
  const settings: FleetSettings = {
    service_urls: prepared.service_urls,
    redis_url: config.redis_url,
    queue_prefix: prepared.queue_prefix,
    sandbox_url,
    read_key: SANDBOX_READ_KEY,
    write_key: SANDBOX_WRITE_KEY,
    profile: config.profile,
    // Browsers give a passkey to localhost and not to an address.
    origin: env.COUNTERSTAMP_ORIGIN || `http://localhost:${api_port}`,
    keys,
  };
  const api_url = `http://127.0.0.1:${api_port}`;
  const services = startServices(start, settings, api_port, owner_url);
  processes.push(...services);
  undo.push(async () => {
    await Promise.all(services.map((one) => one.stop()));
  });
  await terminal.step(
    'services',
    () => Promise.all(services.map((one) => one.ready(signal))),
    () => `${services.map((one) => one.name).join(', ')}: each its own process, all ready`,
  );

  await offerDemoRequest(folder, sandbox_url);
  await claim.publish({
    api_url,
    origin: settings.origin,
    sandbox_url,
    profile: config.profile,
    owner_url,
    services: Object.fromEntries(FLEET.map((service) => [service, serviceVariables(service, settings)])),
  });
  terminal.line(
    `  ${'keys'.padEnd(10)} ${prepared.keys_made === 0 ? 'the demo keys of last time' : `${prepared.keys_made} demo keys made`}, in ${shown(folder.keys)}`,
  );
  const metrics = services.map((one) => `${one.name} http://127.0.0.1:${one.port()}/metrics`);
  return { api_url, sandbox_url, metrics, on_hold };
}

function startServices(
  start: Start,
  settings: FleetSettings,
  api_port: number,
  owner_url: string,
): SupervisedProcess[] {
  const { options, env, config, folder, terminal } = start;
  return FLEET.flatMap((service) => {
    const count = service === 'api' ? 1 : options.counts[service];
    return Array.from({ length: count }, (_, index) => {
      const name = index === 0 ? service : `${service}-${index + 1}`;
      return superviseProcess(
        {
          name,
          service,
          log_file: path.join(folder.logs, `${name}.log`),
          port: () => (service === 'api' ? Promise.resolve(api_port) : anyFreePort()),
          environment: (port) => serviceEnvironment(service, env, settings, port),
          drain_ms: DRAIN_MS[config.profile] ?? DRAIN_DEFAULT_MS,
          async onLost(pid, how) {
            const why = await recordEnd({ owner_url, pid, how });
            if (why !== undefined) terminal.notice(`The end of ${name} (process ${pid}) is not on record: ${why}`);
          },
        },
        terminal.notice,
      );
    });
  });
}

function givenUrls(env: Environment): Partial<Record<FleetService, string>> {
  return Object.fromEntries(
    FLEET.flatMap((service) => {
      const url = env[databaseVariable(service)];
      return url === undefined || url === '' ? [] : [[service, url]];
    }),
  );
}

/** Runs the tour, then judges what is recorded; both in processes of their own, whose memory goes with them. @returns the exit code. */
async function runTour(
  folder: StateFolder,
  config: UpConfig,
  options: UpOptions,
  { on_hold }: Pick<Fleet, 'on_hold'>,
  signal: AbortSignal,
  terminal: Terminal,
): Promise<number> {
  if (config.profile !== 'fast') {
    const why = `The tour needs the waits of COUNTERSTAMP_PROFILE=fast; this fleet runs with ${config.profile}.`;
    terminal.notice(options.tour === 'only' ? why : `${why} It is left out.`);
    return options.tour === 'only' ? EXIT.configuration : EXIT.ok;
  }
  if (on_hold !== '') {
    terminal.notice('The tour is left out: its refunds would wait for the release of what is on hold.');
    return options.tour === 'only' ? EXIT.refused : EXIT.ok;
  }
  const report = options.tourReport === undefined ? [] : ['--report', options.tourReport];
  const tour = await runCommand(['tour', '--fleet', folder.dir, ...report], signal);
  // Cut short, a tour has proved nothing; that is a failure only for whoever asked for nothing else.
  if (signal.aborted) return options.tour === 'only' ? EXIT.refused : EXIT.ok;
  terminal.line('\nThe history of every run, judged beside the ledger of the provider:');
  const judged = await runCommand(['check-history', '--fleet', folder.dir], signal);
  return tour === EXIT.ok ? judged : tour;
}

/** Runs a command of ours on this fleet, in a process of its own that writes to this terminal. @returns its exit code. */
async function runCommand(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { DATABASE_URL: _, ...env } = process.env; // The fleet's state folder says where its database is.
  const child = spawn(process.execPath, [MAIN, ...args], {
    detached: true,
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const stop = () => child.kill('SIGTERM');
  signal.addEventListener('abort', stop, { once: true });
  const [code] = (await once(child, 'exit')) as [number | null];
  signal.removeEventListener('abort', stop);
  return code ?? EXIT.refused;
}

function farewellText(fleet: Fleet, folder: StateFolder, profile: string): string {
  const life = profile === 'fast' ? ' (approve within 60 s: approvals are short-lived here)' : '';
  const me = process.argv[1] === undefined ? 'counterstamp' : `node ${shown(process.argv[1])}`;
  const held =
    fleet.on_hold === ''
      ? ''
      : `\nOn hold, so that nothing of it is sent: ${fleet.on_hold}. To let it go on:\n  ${me} hold list         (then hold release)`;
  return `
The fleet is up. API ${fleet.api_url} (described at /openapi.json), sandbox ${fleet.sandbox_url}.
Try a refund of your own; its case waits in the sandbox${life}:
  ${me} run create --file ${shown(folder.request)}
  ${me} approve RUN_ID        (shows what you approve, then asks)
  ${me} run show RUN_ID${held}
One more worker shares the work:   ${me} service executor --join
Logs, one per process, as JSON:    ${shown(folder.logs)}
Metrics, at these ports until a process is started anew:
  ${fleet.metrics.join('\n  ')}
Ctrl-C ends everything; the data stays for the next start.`;
}

/** As a person would type it from here. */
function shown(file: string): string {
  const relative = path.relative(process.cwd(), file);
  return relative.startsWith('..') || relative === '' ? file : relative;
}
