import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { type ApiClient, createClient } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import type { FaultInput } from '@counterstamp/sandbox';
import type { Chance } from './chance.ts';
import { admin, type ChaosFleet } from './harness.ts';

export interface LoadOptions {
  /** Runs in all; default: until stopped. */
  runs?: number;
  /** Requests under way at a time. */
  drivers: number;
  /** Milliseconds between two requests of one driver. */
  pauseMs?: number;
  /** Share of credits among the runs, 0 to 1. */
  credits: number;
  /** Approve nothing before everything is asked for. */
  approveLast?: boolean;
  /** What meets the requests of one more run at its provider; default: nothing. */
  faults?: (workflow: 'refund' | 'credit', chance: Chance) => readonly FaultInput[];
  chance: Chance;
}

/** Requests and approvals that go on whatever happens to the fleet: a request without an answer is repeated unchanged. */
export interface Load {
  /** Runs whose request was answered. */
  readonly runs: readonly RunId[];
  /** Resolves when all runs are asked for: with `runs`, or after `stop`. Approving goes on until it is abandoned. */
  done(): Promise<void>;
  /** Requests that were never answered, however often repeated. */
  unanswered(): number;
  /** No more requests; those under way are still insisted on. */
  stop(): void;
  /** Nothing is asked or approved any more; resolves when nothing is under way. */
  abandon(): Promise<void>;
}

/** Milliseconds before a failed call is repeated. */
const AGAIN_MS = 100;
/** Milliseconds for which a call is repeated: longer than anything that is done to a fleet. */
const INSIST_MS = 90_000;
const APPROVE_EVERY_MS = 100;
/** Milliseconds before a run that still waits is looked at again: the decision's answer may have been lost. */
const APPROVE_AGAIN_MS = 3_000;

export function startLoad(chaos: ChaosFleet, options: LoadOptions): Load {
  const { chance, drivers, pauseMs = 0 } = options;
  const runs: RunId[] = [];
  let left = options.runs ?? Number.POSITIVE_INFINITY;
  let stopped = false;
  let abandoned = false;
  let unanswered = 0;

  /** Repeats a call until it is answered; `undefined` when it never was. */
  const insist = async <T>(call: () => Promise<T>): Promise<T | undefined> => {
    const until = Date.now() + INSIST_MS;
    while (!abandoned && Date.now() < until) {
      try {
        return await call();
      } catch {
        await delay(AGAIN_MS);
      }
    }
    return undefined;
  };
  const drive = async (): Promise<void> => {
    while (!stopped && left > 0) {
      left -= 1;
      const workflow = chance.happens(options.credits) ? 'credit' : 'refund';
      const faults = options.faults?.(workflow, chance) ?? [];
      const seeded = await insist(() => seed(chaos, workflow, faults));
      // Asked for again unchanged: the answer may have been lost, and the run be there.
      const asked = seeded === undefined ? undefined : await insist(() => request(chaos, workflow, seeded));
      if (asked !== undefined) runs.push(asked);
      else if (!abandoned) unanswered += 1;
      if (pauseMs > 0) await delay(pauseMs);
    }
  };
  const asking = Promise.all(Array.from({ length: drivers }, drive));
  let asked = false;
  const approving = (async () => {
    const approvedAt = new Map<RunId, number>();
    while (!abandoned) {
      if (options.approveLast !== true || asked) await approveWaiting(chaos, approvedAt).catch(() => undefined);
      await delay(APPROVE_EVERY_MS);
    }
  })();
  const done = asking.then(() => {
    asked = true;
  });
  return {
    runs,
    done: () => done,
    unanswered: () => unanswered,
    stop() {
      stopped = true;
    },
    async abandon() {
      stopped = true;
      abandoned = true;
      await Promise.all([asking, approving]);
    },
  };
}

async function seed(chaos: ChaosFleet, workflow: 'refund' | 'credit', faults: readonly FaultInput[]) {
  const id = randomUUID().slice(0, 12);
  const seeded = await chaos.fleet.seed({ request_id: `case_${id}`, order_id: `order_${id}`, payment_id: `pay_${id}` });
  const at =
    workflow === 'credit' ? `/admin/credits/faults/cus_${seeded.order_id}` : `/admin/faults/${seeded.payment_id}`;
  if (faults.length > 0) await admin(chaos.fleet, 'PUT', at, faults);
  return seeded;
}

/** A client of an api that lives now; which one changes. */
export function clientOf(chaos: ChaosFleet, key: string): ApiClient {
  const apis = chaos.living('api').filter((api) => api.port !== 0);
  const api = apis[Math.floor(Math.random() * apis.length)];
  if (api === undefined) throw new Error('no api lives');
  return createClient({ baseUrl: `http://127.0.0.1:${api.port}`, key, fetch, timeoutMs: 5_000 });
}

async function request(
  chaos: ChaosFleet,
  workflow: 'refund' | 'credit',
  seeded: { request_id: string; order_id: string },
): Promise<RunId> {
  const question = { order_id: seeded.order_id, requested_amount_minor: 4200, currency: 'USD' };
  const created = await clientOf(chaos, chaos.fleet.keys.requester).createRun({
    workflow,
    request_id: seeded.request_id,
    input:
      workflow === 'refund'
        ? { ...question, reason: 'item arrived damaged' }
        : { ...question, reason: 'the parcel was late', memo: 'Sorry for the delay' },
  });
  return created.run_id;
}

/** Approves every run that waits and was not approved a while ago. */
async function approveWaiting(chaos: ChaosFleet, approvedAt: Map<RunId, number>): Promise<void> {
  const approver = clientOf(chaos, chaos.fleet.keys.approver);
  const { runs } = await approver.listRuns({ state: 'awaiting_approval', limit: 100 });
  // A run that is approved waits for its executor: asking for it again and again would be a storm of its own.
  const unheard = runs.filter(({ run_id }) => Date.now() - (approvedAt.get(run_id) ?? 0) > APPROVE_AGAIN_MS);
  await Promise.all(
    unheard.map(async ({ run_id }) => {
      approvedAt.set(run_id, Date.now());
      const { approval, decisions_sufficient } = await approver.getRun(run_id);
      if (approval === null || decisions_sufficient) return;
      const { approval_id, approval_digest, action_digest, action_revision } = approval;
      // Somebody may have been faster; what counts is that it is approved.
      await approver
        .decide(run_id, { approval_id, approval_digest, action_digest, action_revision, decision: 'approve' })
        .catch(() => undefined);
    }),
  );
}
