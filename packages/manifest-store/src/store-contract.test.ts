import { describeStore } from '../../../testing/store-contract.ts';
import { settableClock, storeFixture, TEST_ROLE_PREFIX, TEST_SECRET, testIds } from '../../../testing/store-fixture.ts';
import { connect, type Sql } from './connection.ts';
import { endInstance, takeLease } from './instances.ts';
import { serviceUrl } from './roles.ts';
import { createWorkerStore } from './worker-store.ts';

describeStore('on Postgres', async () => {
  const fixture = await storeFixture(18);
  const clock = await settableClock(fixture);
  await clock.set(new Date());
  const leases = new Map<string, Sql>();
  const held = { host: 'test', pid: 1 };
  return {
    stores: fixture.stores,
    executorOf: (instance_id) => createWorkerStore(fixture.serviceSql.executor, { instance_id, ids: testIds }),
    api: fixture.api,
    principal: (role, name, tenant) => fixture.principal(role, name, tenant),
    async revoke({ principal_id, role }) {
      await fixture.owner`update cs.api_key set revoked_at = cs.clock() where principal_id = ${principal_id} and role = ${role}`;
    },
    advanceMs: (ms) => clock.advanceMs(ms),
    async takeLease(instance_id) {
      const url = serviceUrl(fixture.url, 'executor', TEST_SECRET, TEST_ROLE_PREFIX);
      const session = leases.get(instance_id) ?? connect(url, { max: 1, applicationName: 'test-lease' });
      leases.set(instance_id, session);
      return await takeLease(session, instance_id, held);
    },
    async dropLease(instance_id) {
      await leases.get(instance_id)?.end({ timeout: 2 });
      leases.delete(instance_id);
    },
    async endProcess(instance_id) {
      await endInstance(fixture.owner, { instance_id, evidence: 'exit code 137' });
    },
    async close() {
      await Promise.all([...leases.values()].map((session) => session.end({ timeout: 2 })));
      await fixture.close();
    },
  };
});
