import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { RunView } from '@counterstamp/api-contract';
import { freePort, startEmbeddedPostgres } from '@counterstamp/embedded-postgres';
import type { Manifest, RunId } from '@counterstamp/manifest-core';
import { parseTrustedKeys } from '@counterstamp/signatures';
import { verifyDecisions } from '../services/executor/src/approvals.ts';
import { type Browser, signedIn } from '../testing/browser.ts';
import { type Fleet, prepareFleetDatabase, startFleet } from '../testing/fleet.ts';
import type { TestInstallation } from '../testing/test-installation.ts';
import { quantile } from './measure.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '30' },
    rate: { type: 'string', default: '20' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  console.log(`npm run bench:decisions -- [--rate 20] [--seconds 30]
Signed decisions at a fixed rate beside a running fleet that performs every one of them: how long POST decision takes, and what the executor's own check of
a signature costs. Sends only to this machine.`);
  process.exit(0);
}
const RATE = Number(values.rate);
const DECISIONS = RATE * Number(values.seconds);
const WARM = 40;
const CHECKS = 2_000;
const ACCESS = { rolePrefix: 'cs_bench_', secret: 'bench-secret-of-this-run-only' };

const folder = await mkdtemp(join(tmpdir(), 'counterstamp-bench-'));
const postgres = await startEmbeddedPostgres({ dir: join(folder, 'postgres'), durable: true });
const redisPort = await freePort();
const redis = spawn(
  'redis-server',
  ['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder],
  { stdio: 'ignore' },
);
try {
  await prepareFleetDatabase(postgres.url, ACCESS);
  const fleet = await startFleet({
    ownerUrl: postgres.url,
    ...ACCESS,
    redisUrl: `redis://127.0.0.1:${redisPort}`,
    env: { COUNTERSTAMP_PROFILE: 'production', COUNTERSTAMP_DEV: '0' },
  });
  let decided: Manifest;
  try {
    decided = await measure(fleet);
  } finally {
    await fleet.stop();
  }
  // With the fleet gone: the sandbox lives in this process, and its work would be counted with the check's.
  const checkMs = await checkCpuMs(decided, fleet.installation);
  console.log(
    `\nThe executor's check of one approval, as it stood in the database: ${checkMs.toFixed(2)} ms of CPU (mean of ${CHECKS}).`,
  );
} finally {
  redis.kill('SIGTERM');
  await Promise.all([once(redis, 'exit'), postgres.stop()]);
  await rm(folder, { recursive: true, force: true });
}

async function measure(fleet: Fleet): Promise<Manifest> {
  const ada = await signedIn(fleet.owner, fleet.apiUrl, 'ada', ['approver']);
  await decideAll(fleet, ada, WARM);
  const { challenge, decide } = await decideAll(fleet, ada, DECISIONS);
  const figures = (name: string, ms: readonly number[]) =>
    `| ${name} | ${ms.length} | ${quantile(ms, 0.5).toFixed(1)} | ${quantile(ms, 0.95).toFixed(1)} | ${quantile(ms, 0.99).toFixed(1)} | ${Math.max(...ms).toFixed(1)} |`;
  console.log(
    `\n${RATE} signed decisions a second for ${values.seconds} s beside the fleet that performs them, ${cpus().length} cores, Linux ${release()}, Node ${process.versions.node}, PostgreSQL 18 (fsync on), ${new Date().toISOString().slice(0, 10)}\n`,
  );
  console.log('| request | n | p50 ms | p95 ms | p99 ms | max ms |\n|---|---|---|---|---|---|');
  console.log(figures('POST …/decisions/challenge', challenge));
  console.log(figures('POST …/decisions (signed)', decide));
  const { runs } = await fleet.requester.listRuns({ state: 'completed', limit: 1 });
  const [run] = runs;
  if (run === undefined) throw new Error('no run completed');
  const { guards: _g, next: _n, as_of: _a, settles_at: _s, ...manifest } = await fleet.requester.getRun(run.run_id);
  return manifest;
}

/** Decides at the rate, whatever the answers take: a slow one delays nobody's start. */
async function decideAll(
  fleet: Fleet,
  ada: Browser,
  count: number,
): Promise<{ challenge: number[]; decide: number[] }> {
  const runs: RunView[] = [];
  for (let i = 0; i < count; i += 20) {
    const some = await Promise.all(
      Array.from({ length: Math.min(20, count - i) }, async () => fleet.request(await fleet.seed())),
    );
    runs.push(...(await Promise.all(some.map((run_id: RunId) => fleet.until(run_id, ['awaiting_approval'], 60_000)))));
  }
  const took = { challenge: [] as number[], decide: [] as number[] };
  const startedAt = performance.now();
  await Promise.all(
    runs.map(async (run, index) => {
      await new Promise((resolve) => setTimeout(resolve, startedAt + (index * 1_000) / RATE - performance.now()));
      if (run.approval === null) throw new Error('nothing to decide');
      const { approval_id, approval_digest, action_digest, action_revision } = run.approval;
      const shown = { approval_id, approval_digest, action_digest, action_revision, decision: 'approve' };
      const asked = await timed(took.challenge, () => ada.challenge(run.run_id, shown));
      const assertion = await ada.sign(asked.body);
      const decided = await timed(took.decide, () => ada.decide(run.run_id, { ...shown, assertion }));
      if (decided.status !== 200) throw new Error(JSON.stringify(decided.body));
    }),
  );
  return took;
}

async function timed<T>(into: number[], work: () => Promise<T>): Promise<T> {
  const at = performance.now();
  const result = await work();
  into.push(performance.now() - at);
  return result;
}

/** CPU of the executor's own judgement, on a run as the executor loads it. */
async function checkCpuMs(manifest: Manifest, { origin, trusted_keys }: TestInstallation): Promise<number> {
  const trust = { signatures: { keys: parseTrustedKeys(trusted_keys), origin }, development: false };
  const check = async () => {
    const { verified, forged } = await verifyDecisions(manifest, trust);
    if (verified.length !== 1 || forged.length > 0) throw new Error(`not verified: ${JSON.stringify(forged)}`);
  };
  for (let i = 0; i < 500; i++) await check();
  const before = process.cpuUsage();
  for (let i = 0; i < CHECKS; i++) await check();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000 / CHECKS;
}
