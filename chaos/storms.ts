import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { sandboxLedger } from '../testing/check-fleet-history.ts';
import { poll } from '../testing/fleet.ts';
import { chanceOf } from './chance.ts';
import { type ChaosFleet, type ChaosFleetOptions, startChaosFleet } from './harness.ts';
import { checkHistories, lateSends } from './histories.ts';
import { type Load, type LoadOptions, startLoad } from './load.ts';
import { countsText, type Tally, tally, untilAllSettled } from './tally.ts';

/** What came of a storm. `faults`: everything that is not as it must be. */
export interface StormResult {
  name: string;
  faults: string[];
  ms: number;
  kills: number;
  /** How often the fleet was hurt otherwise: flushed, restarted, cut. */
  blows: number;
  tally: Tally;
  /** Requests beyond the assumptions A1 and A2, as the history checker's alarms count them. */
  late_sends: number;
}

interface Storm {
  name: string;
  /** Options of its fleet; storms with none share one. */
  options?: Omit<ChaosFleetOptions, 'backend'>;
  backends: readonly ('redis' | 'postgres')[];
  load: Pick<LoadOptions, 'drivers' | 'credits' | 'pauseMs'> & { runs: number };
  /** Hurts the fleet until the signal aborts. @returns how often. */
  blow(chaos: ChaosFleet, calm: AbortSignal): Promise<number>;
}

export interface StormSize {
  /** Multiplies runs and times; 1 is the whole thing. */
  scale: number;
}

/** Milliseconds for everything to end once a storm is over: the longest back-off of the fast profile, twice, and settling. */
const HEAL_MS = 90_000;

/** The global storms of protocol.md section 5. */
export function storms({ scale }: StormSize): Storm[] {
  const runs = (n: number) => Math.max(10, Math.round(n * scale));
  const seconds = (n: number) => Math.max(4_000, Math.round(n * 1_000 * scale));
  return [
    {
      name: 'FLUSHALL every 2 s',
      backends: ['redis', 'postgres'],
      load: { runs: runs(200), drivers: 2, credits: 0.2, pauseMs: 200 },
      blow: (chaos, calm) => repeatedly(calm, 2_000, () => chaos.wipeQueue(false)),
    },
    {
      name: `Redis away for ${seconds(60) / 1_000} s`,
      backends: ['redis'],
      // The fast profile's approvals would expire meanwhile.
      options: { env: { COUNTERSTAMP_APPROVAL_LIFE_MS: '300000' } },
      load: { runs: runs(60), drivers: 2, credits: 0.2 },
      blow: async (chaos) => {
        await delay(500);
        const back = await chaos.redisAway();
        await delay(seconds(60));
        await back();
        return 1;
      },
    },
    {
      name: 'Postgres restarted every 10 s',
      backends: ['redis', 'postgres'],
      load: { runs: runs(200), drivers: 2, credits: 0.2, pauseMs: 250 },
      blow: (chaos, calm) =>
        repeatedly(calm, 10_000, async () => {
          await chaos.restartPostgres();
        }),
    },
    {
      name: 'every worker told to end (SIGTERM), one after the other, and replaced',
      backends: ['redis', 'postgres'],
      load: { runs: runs(150), drivers: 2, credits: 0.2, pauseMs: 200 },
      blow: rollOut,
    },
    {
      name: 'wall clocks of the workers an hour ahead',
      options: { env: shiftedClock(3_600_000) },
      backends: ['redis'],
      load: { runs: runs(60), drivers: 2, credits: 0.3, pauseMs: 100 },
      blow: async () => 0,
    },
    {
      name: 'wall clocks of the workers an hour behind',
      options: { env: shiftedClock(-3_600_000) },
      backends: ['redis'],
      load: { runs: runs(60), drivers: 2, credits: 0.3, pauseMs: 100 },
      blow: async () => 0,
    },
  ];
}

/** Environment of a process whose `Date` is off by so many milliseconds. */
export function shiftedClock(ms: number): Record<string, string> {
  const preload = fileURLToPath(new URL('preload/shifted-clock.mjs', import.meta.url));
  return { NODE_OPTIONS: `--import=${preload}`, CHAOS_CLOCK_SHIFT_MS: String(ms) };
}

async function repeatedly(calm: AbortSignal, everyMs: number, blow: () => Promise<void>): Promise<number> {
  let count = 0;
  while (!calm.aborted) {
    await delay(everyMs, undefined, { signal: calm }).catch(() => undefined);
    if (calm.aborted) break;
    await blow();
    count += 1;
  }
  return count;
}

/** Ends every process of every worker by SIGTERM, a new one first; each must end with 0. */
async function rollOut(chaos: ChaosFleet): Promise<number> {
  let count = 0;
  for (const service of ['preflight', 'executor', 'verifier', 'reconciler', 'api'] as const)
    for (const old of chaos.living(service)) {
      // The driver's own client of the first api stays: it waits for states there.
      if (service === 'api' && old === chaos.living('api')[0]) continue;
      await chaos.fleet.start(service);
      const code = await chaos.fleet.end(old, 'SIGTERM');
      if (code !== 0) throw new Error(`${service} ended with ${code} when it was told to`);
      count += 1;
    }
  return count;
}

/** Runs a storm on a fleet: load, blows until the load is asked for, calm, and then everything must be right. */
export async function weather(chaos: ChaosFleet, storm: Storm, seed: number): Promise<StormResult> {
  const startedAt = performance.now();
  const killsBefore = chaos.kills.count;
  const calm = new AbortController();
  const faults: string[] = [];
  const load = startLoad(chaos, { ...storm.load, chance: chanceOf(seed) });
  let blows = 0;
  try {
    const blowing = storm.blow(chaos, calm.signal);
    blowing.catch(() => calm.abort()); // Told below, where it is waited for.
    await load.done();
    calm.abort();
    blows = await blowing;
  } catch (error) {
    faults.push(error instanceof Error ? error.message : String(error));
  } finally {
    calm.abort();
    load.stop();
  }
  if (load.unanswered() > 0) faults.push(`${load.unanswered()} requests were never answered`);
  await chaos.refill();
  await untilAllSettled(chaos, load.runs, HEAL_MS);
  await load.abandon();
  const counts = await tally(chaos, load.runs);
  faults.push(...wrongIn(counts));
  if (counts.runs !== storm.load.runs) faults.push(`${counts.runs} runs, not ${storm.load.runs}`);
  const late_sends = await lateSends(chaos, load.runs);
  // The providers were well: nothing but the storm stood between a run and its end. A send beyond A1 and A2 may rightly be given up for absent.
  const givenUp = Math.min(counts.parked.effect_not_found ?? 0, late_sends);
  if (counts.completed + givenUp !== counts.runs)
    faults.push(
      `${counts.completed} of ${counts.runs} completed; parked: ${countsText(counts.parked)}; closed: ${countsText(counts.closed)}`,
    );
  // Under load a process may pause for longer than Z: that is counted, and everything else judged as ever.
  faults.push(
    ...(await checkHistories(chaos, { only: load.runs, lateSend: 'may', overdue_ms: 15_000 })),
    ...chaos.crashes(),
  );
  return {
    late_sends,
    name: `${storm.name}, on ${chaos.backend}`,
    faults,
    ms: Math.round(performance.now() - startedAt),
    kills: chaos.kills.count - killsBefore,
    blows,
    tally: counts,
  };
}

/** D while everything is in flight, in milliseconds: long enough to get there, and so long that only the lost session lease explains a quick end. */
export const IN_FLIGHT_DEADLINE_MS = 15_000;

/** What may never be in a tally. */
export function wrongIn({ duplicates, lost, stuck }: Tally): string[] {
  return [
    ...(duplicates > 0 ? [`${duplicates} duplicate effects`] : []),
    ...(lost > 0 ? [`${lost} runs completed without an effect`] : []),
    ...(stuck.length > 0 ? [`${stuck.length} runs stuck: ${stuck.slice(0, 5).join(', ')}`] : []),
  ];
}

/**
 * Every POST under way at once, its effect booked and its answer held, and then SIGKILL to every executor: each run must end right without a person.
 * @param randomKeys whether the fleet's connector mints a key of its own per call: the ledger must show the runtime's.
 */
export async function killAllInFlight(
  backend: ChaosFleet['backend'],
  { runs, randomKeys }: { runs: number; randomKeys: boolean },
): Promise<StormResult & { right_after_ms: number }> {
  const startedAt = performance.now();
  const chaos = await startChaosFleet({
    backend,
    env: {
      COUNTERSTAMP_CONCURRENCY: String(runs),
      COUNTERSTAMP_CALL_DEADLINE_MS: String(IN_FLIGHT_DEADLINE_MS),
      ...(randomKeys
        ? { NODE_OPTIONS: `--import=${fileURLToPath(new URL('preload/random-key.mjs', import.meta.url))}` }
        : {}),
    },
  });
  let load: Load | undefined;
  try {
    const faults: string[] = [];
    load = startLoad(chaos, {
      runs,
      drivers: 8,
      credits: 0,
      // Beyond D: no answer comes before the kill.
      faults: () => [{ kind: 'hang_after_accept', hold_ms: 2 * IN_FLIGHT_DEADLINE_MS }],
      approveLast: true,
      chance: chanceOf(1),
    });
    await poll(async () => (await executing(chaos)) === runs, 60_000, `not all ${runs} were under way at once`);
    await poll(
      async () => (await sandboxLedger(chaos.fleet.sandbox.url)).effects.length === runs,
      5_000,
      'not every effect was there',
    );
    const killedAt = performance.now();
    await Promise.all(chaos.living('executor').map((executor) => chaos.kill(executor)));
    await untilAllSettled(chaos, load.runs, 30_000);
    const right_after_ms = Math.round(performance.now() - killedAt);
    await chaos.refill();
    const counts = await tally(chaos, load.runs);
    faults.push(...wrongIn(counts));
    if (counts.completed !== runs)
      faults.push(`${counts.completed} of ${runs} completed; parked: ${countsText(counts.parked)}`);
    const { requests } = await sandboxLedger(chaos.fleet.sandbox.url);
    const minted = chaos.fleet.processes
      .filter((each) => each.service === 'executor')
      .flatMap((executor) => chaos.log(executor).filter((line) => line.minted !== undefined)).length;
    if (randomKeys && minted < runs) faults.push(`the connector minted ${minted} keys for ${runs} runs`);
    const strange = requests.filter((request) => request.idempotency_key?.startsWith('cs-') !== true);
    if (strange.length > 0) faults.push(`${strange.length} requests carried another key than the runtime’s`);
    if (requests.length !== runs) faults.push(`${requests.length} requests for ${runs} runs`);
    faults.push(...(await checkHistories(chaos, { lateSend: 'may', overdue_ms: 15_000 })), ...chaos.crashes());
    return {
      late_sends: await lateSends(chaos, load.runs),
      name: `${runs} in flight, SIGKILL to every executor${randomKeys ? ', a connector that mints a random key per call' : ''}, on ${backend}`,
      faults,
      ms: Math.round(performance.now() - startedAt),
      kills: chaos.kills.count,
      blows: 0,
      tally: counts,
      right_after_ms,
    };
  } finally {
    await load?.abandon();
    await chaos.stop();
  }
}

async function executing({ sql }: ChaosFleet): Promise<number> {
  const [row] = await sql()<{ n: number }[]>`select count(*)::int as n from cs.run where state = 'executing'`;
  return row?.n ?? 0;
}
