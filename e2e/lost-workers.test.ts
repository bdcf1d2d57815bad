import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Fleet, poll } from '../testing/fleet.ts';
import { FLEET_BACKENDS, testFleet } from '../testing/test-fleet.ts';

/** Failpoints at which a worker is killed, and the service that meets them. */
const BEFORE_THE_EFFECT = [
  ['preflight', 'stage.loaded'],
  ['preflight', 'stage.before-commit'],
  ['api', 'create.committed.before-hint'],
  ['api', 'decision.committed.before-hint'],
  ['executor', 'stage.loaded'],
  ['executor', 'dispatch.loaded'],
  ['executor', 'dispatch.t0.before-begin'],
] as const;

describe.each(FLEET_BACKENDS)('nothing-stuck, on the %s queue', (backend) => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await testFleet(backend);
  }, 90_000);
  afterAll(() => fleet?.stop(), 30_000);

  /** Replaces the service's process by one that ends itself, as by SIGKILL, at the failpoint; afterwards a healthy one takes over. */
  async function killedAt(
    service: 'api' | 'preflight' | 'executor' | 'verifier' | 'reconciler',
    failpoint: string,
    act: (through: Pick<Fleet, 'request' | 'approve'>) => Promise<void>,
  ): Promise<void> {
    const healthy = fleet.processes.filter(
      (started) => started.service === service && started.child.exitCode === null && started.child.signalCode === null,
    );
    const victim = await fleet.start(service, { COUNTERSTAMP_FAILPOINTS: `${failpoint}=kill` });
    for (const started of healthy) if (service !== 'api') await fleet.end(started, 'SIGTERM');
    await act(service === 'api' ? fleet.through(victim) : fleet);
    expect(await victim.ended).toBe('SIGKILL');
    if (service !== 'api') await fleet.start(service);
  }

  test.each(BEFORE_THE_EFFECT)(
    'a %s killed at %s loses nothing: the run goes on to one verified effect',
    async (service, failpoint) => {
      const seeded = await fleet.seed();
      let run_id = '' as Awaited<ReturnType<Fleet['request']>>;
      await killedAt(service, failpoint, async (through) => {
        if (service === 'api' && failpoint.startsWith('create')) {
          // The answer may die with the process; the same request again finds the run.
          await through.request(seeded).catch(() => undefined);
          run_id = await fleet.request(seeded);
        } else {
          run_id = await fleet.request(seeded);
          await fleet.until(run_id, (run) => service === 'preflight' || run.state === 'awaiting_approval');
          if (service !== 'preflight') await through.approve(run_id).catch(() => undefined);
        }
      });
      const run = await fleet.until(run_id, ['awaiting_approval', 'completed'], 40_000);
      if (run.state === 'awaiting_approval' && !run.decisions_sufficient) await fleet.approve(run_id);
      await fleet.until(run_id, ['completed'], 40_000);
      expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
    },
    90_000,
  );

  test.each([
    ['dispatch.acked.before-check', 0],
    ['dispatch.checked.before-write', 0],
    ['dispatch.written.before-response', 1],
    ['dispatch.response.before-outcome', 1],
  ] as const)(
    'an executor killed at %s: nobody else sends its attempt; it is looked up, and only if absent for certain sent once more',
    async (failpoint, sent) => {
      const seeded = await fleet.seed();
      const run_id = await fleet.request(seeded);
      await fleet.until(run_id, ['awaiting_approval']);
      await killedAt('executor', failpoint, async () => {
        await fleet.approve(run_id);
        await poll(async () => (await fleet.requester.getRun(run_id)).attempts.length === 1, 20_000, 'no attempt');
      });
      // A second executor is up again and sees the run; the redelivered hint and the sweep must not make it send.
      const run = await fleet.until(
        run_id,
        (seen) => seen.state === 'completed' || seen.parked_reason !== null,
        40_000,
      );
      const { events } = await fleet.requester.runEvents(run_id);
      expect(events.map((event) => event.trigger)).toContain('attempt_overdue');
      expect(run.state).toBe('completed');
      expect(run.attempts).toMatchObject(
        sent === 0 ? [{ status: 'uncertain' }, { status: 'succeeded' }] : [{ status: 'uncertain' }],
      );
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
      expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
    },
    90_000,
  );

  test.each([
    ['verifier', 'verify.read.before-commit'],
    ['executor', 'outcome.committed.before-hint'],
  ] as const)(
    'a %s killed at %s: the verification is made by another',
    async (service, failpoint) => {
      const seeded = await fleet.seed();
      const run_id = await fleet.request(seeded);
      await fleet.until(run_id, ['awaiting_approval']);
      await killedAt(service, failpoint, async () => {
        await fleet.approve(run_id);
      });
      await fleet.until(run_id, ['completed'], 40_000);
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
    },
    90_000,
  );

  test.each([
    'sweep.selected.before-commit',
    'reconcile.read.before-commit',
    'reconcile.observed-at.before-read',
    'stage.committed.before-hint',
  ] as const)(
    'a reconciler killed at %s: the next one looks the effect up',
    async (failpoint) => {
      const seeded = await fleet.seed();
      await fleet.fault(seeded.payment_id, { kind: 'cut_after_accept' });
      const run_id = await fleet.request(seeded, failpoint.startsWith('sweep') ? { approval_life_ms: 2_000 } : {});
      await fleet.until(run_id, ['awaiting_approval']);
      await killedAt('reconciler', failpoint, async () => {
        if (!failpoint.startsWith('sweep')) await fleet.approve(run_id);
      });
      await fleet.until(run_id, failpoint.startsWith('sweep') ? ['expired'] : ['completed'], 40_000);
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(failpoint.startsWith('sweep') ? 0 : 1);
    },
    90_000,
  );
});
