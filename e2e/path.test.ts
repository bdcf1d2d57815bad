import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FLEET_BACKENDS, type Fleet, startFleet } from '../testing/fleet.ts';

describe.each(FLEET_BACKENDS)('a fleet of real processes on the %s queue', (backend) => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet({ backend });
  }, 90_000);
  afterAll(() => fleet?.stop(), 30_000);

  test('completed-means-observed: a refund request travels to a verified refund, with one request and one effect', async () => {
    const seeded = await fleet.seed();
    const run_id = await fleet.request(seeded);
    await fleet.approve(run_id);
    const run = await fleet.until(run_id, ['completed']);
    const [effect, ...others] = await fleet.effects(seeded.payment_id);
    expect(others).toEqual([]);
    expect(effect).toMatchObject({ amount: 4200, currency: 'USD', run_id, status: 'succeeded' });
    expect(run.outcome).toMatchObject({ kind: 'matched', provider_ref: effect?.refund_id });
    const ledger = await fleet.ledger(seeded.payment_id);
    expect(ledger).toHaveLength(1);
    expect(ledger[0]?.idempotency_key).toBe(run.attempts[0]?.idempotency_key);
    expect(run.revision).toBe(10);
  });
});
