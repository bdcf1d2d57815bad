import type { RunId, Service, State } from '@counterstamp/manifest-core';
import { PROFILES } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkFleetHistory, sandboxLedger } from '../testing/check-fleet-history.ts';
import { type Fleet, type ServiceProcess } from '../testing/fleet.ts';
import {
  approveAll,
  ask,
  noisyAndQuiet,
  QUIET_RUNS,
  type Tenant,
  UNLIMITED,
  untilSoMany,
  withoutAny,
} from '../testing/noisy-neighbour.ts';
import { FLEET_BACKENDS, testFleet } from '../testing/test-fleet.ts';

const WORKERS = ['preflight', 'executor', 'verifier', 'reconciler'] as const;

/** Runs of the noisy tenant, far more than two lanes hold; `npm run fairness` is the same with 10,000. */
const NOISY_RUNS = 120;
/** Of the noisy tenant's, at most so many may come before the quiet one's ten: its first lane, and what was under work or taken at the same moment. */
const BEFORE_MAX = 60;

describe.each(FLEET_BACKENDS)('two of every process, on the %s queue', (backend) => {
  let fleet: Fleet;
  let noisy: Tenant;
  let quiet: Tenant;
  beforeAll(async () => {
    // People are slow here: nothing may expire meanwhile.
    fleet = await testFleet(backend, undefined, { ...UNLIMITED, COUNTERSTAMP_APPROVAL_LIFE_MS: '300000' });
    await Promise.all((['api', ...WORKERS] as const).map((service) => fleet.start(service)));
    ({ noisy, quiet } = await noisyAndQuiet(fleet));
  }, 90_000);
  afterAll(() => fleet?.stop(), 30_000);

  /** Runs of a tenant that moved into a state, in the order in which they did. */
  const arrivals = async (state: State) =>
    await fleet.owner<{ tenant_id: string }[]>`
      select r.tenant_id from cs.run_event e join cs.run r using (run_id)
       where e.to_state = ${state} and e.from_state <> ${state} and r.tenant_id in (${noisy.tenant_id}, ${quiet.tenant_id}) order by e.at`;
  /** How many of the noisy tenant's came before the last of the quiet one's. */
  const overtaking = async (state: State): Promise<number> => {
    const order = (await arrivals(state)).map(({ tenant_id }) => tenant_id);
    expect(order.filter((tenant_id) => tenant_id === quiet.tenant_id)).toHaveLength(QUIET_RUNS);
    return order.slice(0, order.lastIndexOf(quiet.tenant_id)).filter((tenant_id) => tenant_id === noisy.tenant_id)
      .length;
  };

  test('a tenant with few runs does not wait for who has many, neither for its approvals nor for its effects', async () => {
    let many: RunId[] = [];
    let few: RunId[] = [];
    await withoutAny(fleet, 'preflight', async () => {
      many = await ask(fleet, noisy, NOISY_RUNS);
      few = await ask(fleet, quiet, QUIET_RUNS);
    });
    await untilSoMany(fleet, noisy, 'awaiting_approval', NOISY_RUNS);
    expect(await overtaking('awaiting_approval')).toBeLessThanOrEqual(BEFORE_MAX);

    await withoutAny(fleet, 'executor', async () => {
      await approveAll(noisy, many);
      await approveAll(quiet, few);
    });
    await untilSoMany(fleet, noisy, 'completed', NOISY_RUNS);
    expect(await overtaking('executing')).toBeLessThanOrEqual(BEFORE_MAX);
  }, 120_000);

  test('workers come and go under load: no run is lost, no effect is doubled, every worker has its share', async () => {
    const living = (service: Service): ServiceProcess[] =>
      fleet.processes.filter(
        (one) => one.service === service && one.child.exitCode === null && one.child.signalCode === null,
      );
    // The first test left one preflight and one executor.
    await Promise.all((['preflight', 'executor'] as const).map((service) => fleet.start(service)));
    let changing = true;
    const asked: { run_id: RunId; payment_id: string }[] = [];
    const load = Promise.all(
      Array.from({ length: 4 }, async (_, driver) => {
        for (let i = 0; changing; i++) {
          const seeded = await fleet.seed();
          // Some are left in doubt by the provider: reconcilers need work, too.
          if ((driver + i) % 4 === 0) await fleet.fault(seeded.payment_id, { kind: 'cut_after_accept' });
          const run_id = await fleet.request(seeded);
          asked.push({ run_id, payment_id: seeded.payment_id });
          await fleet.approve(run_id);
        }
      }),
    );
    const codes: (number | string)[] = [];
    for (const service of WORKERS) {
      const [oldest] = living(service);
      await fleet.start(service);
      if (oldest !== undefined) codes.push(await fleet.end(oldest, 'SIGTERM'));
    }
    changing = false;
    await load;
    expect(codes).toEqual(WORKERS.map(() => 0));
    for (const { run_id } of asked) await fleet.until(run_id, ['completed'], 60_000);
    for (const { payment_id } of asked) {
      expect(await fleet.effects(payment_id)).toHaveLength(1);
      expect(await fleet.ledger(payment_id)).toHaveLength(1);
    }
    const { fast } = PROFILES;
    const judged = await checkFleetHistory({
      sql: fleet.owner,
      ledger: () => sandboxLedger(fleet.sandbox.url),
      durations: fast,
    });
    expect(judged.runs).toBe(NOISY_RUNS + QUIET_RUNS + asked.length);
    const actors = await fleet.owner<{ actor: string }[]>`select distinct actor from cs.run_event`;
    for (const service of WORKERS) {
      // Each of the two, or the one that came for one of them.
      const those = actors.filter(({ actor }) => actor.startsWith(`${service}/`));
      expect(those.length, service).toBeGreaterThanOrEqual(2);
    }
  }, 120_000);
});
