import { setTimeout as delay } from 'node:timers/promises';
import {
  type ApiClient,
  createClient,
  type DecideBody,
  type DecidedRun,
  ProblemError,
  type RunView,
} from '@counterstamp/api-contract';
import { isClosed, type RunId } from '@counterstamp/manifest-core';
import { CliFailure } from '../failure.ts';
import type { DemoKeys } from '../up/state-folder.ts';
import { createSandboxClient, type SandboxClient } from './sandbox-client.ts';
import { AMOUNT_MINOR, type Asked, type Holder, type World } from './scenario.ts';
import type { Signers } from './signers.ts';

/** Milliseconds that any one wait of a scenario may take. The longest expected one is about 6 s. */
const WAIT_MAX_MS = 40_000;

/** Where the tour's runs live, and who looks at them. */
export const TENANT = 'shop_north';
export const READER = 'shop_north/auditor';

/** What a scenario works with: nothing but public HTTP. */
export interface Tools {
  as(holder: Holder): ApiClient;
  /** Decides as this person would: signed with their passkey where they have one, else with their key. */
  decide(holder: Holder, run_id: RunId, body: DecideBody): Promise<DecidedRun>;
  sandbox: SandboxClient;
  /** A name that no scenario of any tour had before, and what all names of this tour begin with. */
  unique(): string;
  prefix: string;
}

export function createTools(fleet: { api_url: string; sandbox_url: string }, keys: DemoKeys, signers: Signers): Tools {
  const clients = new Map<Holder, ApiClient>();
  const prefix = `tour_${Date.now().toString(36)}_${process.pid}_`;
  let made = 0;
  const tools: Tools = {
    as(holder) {
      const [tenant = '', person = ''] = holder.split('/');
      const key = keys[tenant]?.[person];
      if (key === undefined)
        throw new CliFailure(`There is no demo key ${holder}.`, 'Start the fleet again with `counterstamp up`.');
      const client = clients.get(holder) ?? createClient({ baseUrl: fleet.api_url, key, fetch });
      clients.set(holder, client);
      return client;
    },
    sandbox: createSandboxClient(fleet.sandbox_url),
    unique: () => `${prefix}${++made}`,
    prefix,
    decide: (holder, run_id, body) => (signers.get(holder) ?? tools.as(holder)).decide(run_id, body),
  };
  return tools;
}

/** Milliseconds between two looks at a run: quick at first, since most steps take tens of milliseconds. */
const LOOK_FIRST_MS = 60;
const LOOK_LAST_MS = 400;

/** Looks until `done` holds or `limitMs` is over; returns what it saw last. */
export async function lookUntil<T>(look: () => Promise<T>, done: (seen: T) => boolean, limitMs: number): Promise<T> {
  const endsAt = performance.now() + limitMs;
  for (let pause = LOOK_FIRST_MS; ; pause = Math.min(LOOK_LAST_MS, pause * 1.5)) {
    const seen = await look();
    if (done(seen) || performance.now() > endsAt) return seen;
    await delay(pause);
  }
}

/** How the api refused, as a scenario writes it; `accepted` when it did not. */
export async function refusalOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return 'accepted';
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return `${error.status} ${error.code}${error.path === '' ? '' : ` at ${error.path}`}`;
  }
}

/** A coherent, open case of the name `id`, unless the world differs. */
export async function seedCase(tools: Tools, id: string, world: World & { order_id?: string } = {}): Promise<void> {
  const { amount_minor = AMOUNT_MINOR, order_id = `order_${id}`, ...rest } = world;
  await tools.sandbox.seedCase({
    tenant_id: TENANT,
    request_id: `case_${id}`,
    order_id,
    amount_minor,
    currency: 'USD',
    ...rest,
  });
}

/** The request for its refund. */
export async function createRun(
  tools: Tools,
  id: string,
  { amount_minor = AMOUNT_MINOR, allowed_operations, ...asked }: Asked = {},
  change: { order_id?: string; supersedes?: RunId } = {},
): Promise<{ run_id: RunId; created: boolean; generation: number }> {
  const { order_id = `order_${id}`, ...rest } = change;
  return await tools.as('shop_north/requester').createRun({
    request_id: `case_${id}`,
    input: { order_id, requested_amount_minor: amount_minor, currency: 'USD', reason: 'item arrived damaged' },
    ...(allowed_operations === undefined ? {} : { allowed_operations: [...allowed_operations] }),
    ...asked,
    ...rest,
  });
}

/** Looks until the run has stopped for good or for a person, or until `until` holds. */
export function waitFor(tools: Tools, run_id: RunId, until: (run: RunView) => boolean): Promise<RunView> {
  const stopped = (run: RunView) => isClosed(run.state) || run.parked_reason !== null;
  return lookUntil(
    () => tools.as(READER).getRun(run_id),
    (run) => stopped(run) || until(run),
    WAIT_MAX_MS,
  );
}
