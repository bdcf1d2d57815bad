import { describeStore } from '../testing/store-contract.ts';
import { testIds } from '../testing/test-ids.ts';
import { MemoryStore } from './memory-store.ts';
import { START_MS } from './world.ts';

describeStore('in memory', () => {
  let nowMs = START_MS;
  const store = new MemoryStore({ nowMs: () => nowMs });
  return Promise.resolve({
    stores: {
      preflight: store.workerStore('preflight', 'ins_preflight', testIds),
      executor: store.workerStore('executor', 'ins_executor', testIds),
      verifier: store.workerStore('verifier', 'ins_verifier', testIds),
      reconciler: store.workerStore('reconciler', 'ins_reconciler', testIds),
    },
    executorOf: (instance_id) => store.workerStore('executor', instance_id, testIds),
    api: store.api(),
    principal: (role, name = role, tenant_id = 'shop_north') => {
      const who = { tenant_id, principal_id: `prn_${name}`, role };
      store.addPrincipal(who);
      return Promise.resolve(who);
    },
    revoke: (who) => Promise.resolve(store.revoke(who.principal_id, who.role)),
    advanceMs: (ms) => {
      nowMs += ms;
      return Promise.resolve();
    },
    takeLease: (instance_id) => Promise.resolve(store.takeLease(instance_id)),
    dropLease: (instance_id) => Promise.resolve(store.dropLease(instance_id)),
    endProcess: (instance_id) => Promise.resolve(void store.endInstance(instance_id, 'supervisor')),
    close: () => Promise.resolve(),
  });
});
