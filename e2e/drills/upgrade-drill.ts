import type { RunId, Service } from '@counterstamp/manifest-core';
import { PROFILES } from '@counterstamp/manifest-core';
import { checkFleetHistory, sandboxLedger } from '../../testing/check-fleet-history.ts';
import { type Fleet, type FleetOptions, startFleet } from '../../testing/fleet.ts';
import { missedByOlder, readSchemaContract } from '../../testing/schema-contract.ts';

/** Milliseconds for a run to go on, with two fleets on two cores. */
const RUN_MS = 60_000;

export interface UpgradeDrill {
  /** A database at the schema before, and its access; the queue's schema is there as well. */
  fleet: Pick<FleetOptions, 'ownerUrl' | 'rolePrefix' | 'secret' | 'keys'>;
  /** Repository whose built code the old processes run; absent: this one's. */
  oldRoot?: string;
  /** Brings the database to this version's schema. @returns the migrations that were applied. */
  upgrade(): Promise<string[]>;
  say(sentence: string): void;
}

/**
 * An upgrade and its roll-back while runs are under way: old processes on the schema before, the migration under them, new processes beside them, new ones alone,
 * and old ones again on the new schema. Ends what it starts.
 * @throws {Error} when old processes cannot live with the new schema, a run does not end, or anything is there twice.
 */
export async function upgradeDrill({ fleet: at, oldRoot, upgrade, say }: UpgradeDrill): Promise<void> {
  const closers: (() => Promise<unknown>)[] = [];
  try {
    const old = await startFleet({ ...at, ...(oldRoot === undefined ? {} : { cwd: oldRoot }) });
    closers.push(() => old.stop());
    const asked: Asked[] = [];
    const through = async (fleet: Fleet, phase: string) => {
      const some = await Promise.all([ask(fleet), ask(fleet)]);
      asked.push(...some);
      for (const { run_id } of some) await fleet.approve(run_id);
      for (const { run_id } of some) await fleet.until(run_id, ['completed'], RUN_MS);
      say(`${phase}: 2 runs completed.`);
    };
    await through(old, 'Old processes on the schema before');

    // One in each kind of wait, so that what was begun by old code under the old schema ends under the new one.
    const undecided = await ask(old);
    await old.until(undecided.run_id, ['awaiting_approval'], RUN_MS);
    const doubtful = await ask(old, { kind: 'cut_before_accept' });
    await old.approve(doubtful.run_id);
    await old.until(doubtful.run_id, ['needs_reconciliation'], RUN_MS);
    const underWay = await ask(old, { kind: 'hang_after_accept', hold_ms: 1_500 });
    await old.approve(underWay.run_id);
    await old.until(underWay.run_id, (run) => run.attempts.length > 0, RUN_MS);
    asked.push(undecided, doubtful, underWay);

    const before = await readSchemaContract(old.owner, at.rolePrefix);
    const applied = await upgrade();
    const missed = missedByOlder(before, await readSchemaContract(old.owner, at.rolePrefix));
    if (missed.length > 0)
      throw new Error(`Old processes cannot live with ${applied.join(', ')}:\n${missed.join('\n')}`);
    say(
      `Migrated under them, 1 run undecided, 1 uncertain, 1 being sent: ${applied.join(', ') || 'nothing to apply'}. All that old processes use is still there.`,
    );
    await through(old, 'Old processes on the new schema');

    const now = await startFleet({ ...at, before: old });
    closers.push(() => now.stop());
    await Promise.all([through(old, 'Side by side, asked through the old api'), through(now, 'and through the new')]);
    await end(old, old.processes);
    await now.approve(undecided.run_id);
    for (const { run_id } of [undecided, doubtful, underWay]) await now.until(run_id, ['completed'], RUN_MS);
    await through(now, 'New processes alone, what the old ones had begun completed by them');

    const back = await startFleet({ ...at, before: old, ...(oldRoot === undefined ? {} : { cwd: oldRoot }) });
    closers.push(() => back.stop());
    await end(now, now.processes);
    await through(back, 'Rolled back to old processes, on the new schema');

    for (const { run_id, payment_id } of asked) {
      const effects = await back.effects(payment_id);
      if (effects.length !== 1) throw new Error(`${run_id} has ${effects.length} effects`);
    }
    const { runs } = await checkFleetHistory({
      sql: back.owner,
      ledger: () => sandboxLedger(back.sandbox.url),
      durations: PROFILES.fast,
    });
    say(`Every one of ${runs} runs had its effect once, and every history holds beside the ledger.`);
  } finally {
    for (const close of closers.reverse()) await close().catch(() => undefined);
  }
}

interface Asked {
  run_id: RunId;
  payment_id: string;
}

async function ask(fleet: Fleet, fault?: unknown): Promise<Asked> {
  const seeded = await fleet.seed();
  if (fault !== undefined) await fleet.fault(seeded.payment_id, fault);
  return { run_id: await fleet.request(seeded), payment_id: seeded.payment_id };
}

/** The api last: the others may still want to say something. */
async function end(fleet: Fleet, processes: Fleet['processes']): Promise<void> {
  const isApi = ({ service }: { service: Service }) => service === 'api';
  await Promise.all(processes.filter((one) => !isApi(one)).map((one) => fleet.end(one, 'SIGTERM')));
  await Promise.all(processes.filter(isApi).map((one) => fleet.end(one, 'SIGTERM')));
}
