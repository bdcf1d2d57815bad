import { type ApiClient, createClient } from '@counterstamp/api-contract';
import type { RunId, Service, State } from '@counterstamp/manifest-core';
import { createApiKey } from '@counterstamp/manifest-store';
import { type Fleet, poll } from './fleet.ts';
import { testIds } from './test-ids.ts';

/** What a fleet must be started with: the driver is one principal that sends as fast as it can. */
export const UNLIMITED = { COUNTERSTAMP_RATE_PER_PRINCIPAL: '1000000', COUNTERSTAMP_RATE_PER_TENANT: '1000000' };

/** Runs of the quiet tenant. */
export const QUIET_RUNS = 10;

/** Requests under way at a time from one tenant's driver. */
const DRIVERS = 16;

/** Milliseconds for whatever is waited for; a wait that takes this long has failed, whatever the machine. */
const BOUND_MS = 600_000;

export interface Tenant {
  tenant_id: string;
  requester: ApiClient;
  approver: ApiClient;
}

/** Two more tenants of a fleet: one that floods it, one that wants little. */
export async function noisyAndQuiet(fleet: Fleet): Promise<{ noisy: Tenant; quiet: Tenant }> {
  const tenant = async (tenant_id: string): Promise<Tenant> => {
    const client = async (role: 'requester' | 'approver') => {
      const { key } = await createApiKey(fleet.owner, testIds, { tenant_id, name: role, role });
      return createClient({ baseUrl: fleet.apiUrl, key, fetch });
    };
    return { tenant_id, requester: await client('requester'), approver: await client('approver') };
  };
  return { noisy: await tenant('shop_noisy'), quiet: await tenant('shop_quiet') };
}

/** How many of a tenant's runs are in each state, as the database says. */
export async function statesOf(fleet: Fleet, { tenant_id }: Tenant): Promise<Partial<Record<State, number>>> {
  const rows = await fleet.owner<{ state: State; n: number }[]>`
    select state, count(*)::int as n from cs.run where tenant_id = ${tenant_id} group by state`;
  return Object.fromEntries(rows.map(({ state, n }) => [state, n]));
}

/** Asks for refunds of so many new cases. @returns the runs, in no particular order. */
export async function ask(fleet: Fleet, { tenant_id, requester }: Tenant, runs: number): Promise<RunId[]> {
  return await inParallel(
    Array.from({ length: runs }, (_, i) => i),
    async () => {
      const { request_id, order_id } = await fleet.seed({ tenant_id });
      const { run_id } = await requester.createRun({
        request_id,
        input: { order_id, requested_amount_minor: 4200, currency: 'USD', reason: 'item arrived damaged' },
      });
      return run_id;
    },
  );
}

/** Approves runs that await it. */
export async function approveAll({ approver }: Tenant, runs: readonly RunId[]): Promise<void> {
  await inParallel(runs, async (run_id) => {
    const { approval } = await approver.getRun(run_id);
    if (approval === null) throw new Error(`${run_id} awaits no approval`);
    const { approval_id, approval_digest, action_digest, action_revision } = approval;
    await approver.decide(run_id, {
      approval_id,
      approval_digest,
      action_digest,
      action_revision,
      decision: 'approve',
    });
  });
}

/** Some of a tenant's runs that await their approval. */
export async function waitingForApproval(fleet: Fleet, { tenant_id }: Tenant, limit: number): Promise<RunId[]> {
  const rows = await fleet.owner<{ run_id: string }[]>`
    select 'run_' || run_id as run_id from cs.run
     where tenant_id = ${tenant_id} and state = 'awaiting_approval' and not decisions_sufficient limit ${limit}`;
  return rows.map(({ run_id }) => run_id as RunId);
}

/** Waits until so many of a tenant's runs are in the state. */
export async function untilSoMany(fleet: Fleet, tenant: Tenant, state: State, runs: number): Promise<void> {
  const reached = async () => ((await statesOf(fleet, tenant))[state] ?? 0) >= runs;
  await poll(reached, BOUND_MS, `${runs} runs of ${tenant.tenant_id} are not ${state}`);
}

/** Does something while no process of a service runs, so that work for it piles up; then one takes it up again. */
export async function withoutAny(fleet: Fleet, service: Service, meanwhile: () => Promise<void>): Promise<void> {
  const living = fleet.processes.filter(
    (one) => one.service === service && one.child.exitCode === null && one.child.signalCode === null,
  );
  await Promise.all(living.map((one) => fleet.end(one, 'SIGTERM')));
  await meanwhile();
  await fleet.start(service);
}

async function inParallel<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const left = [...items];
  const results: R[] = [];
  await Promise.all(
    Array.from({ length: DRIVERS }, async () => {
      for (let item = left.pop(); item !== undefined; item = left.pop()) results.push(await work(item));
    }),
  );
  return results;
}
