import { setTimeout as delay } from 'node:timers/promises';
import { type ApiClient, createClient, ProblemError } from '@counterstamp/api-contract';
import { CliFailure } from '../failure.ts';
import type { DemoKeys } from '../up/state-folder.ts';
import { createSandboxClient, type SandboxClient } from './sandbox-client.ts';
import type { Holder } from './scenario.ts';

/** What a scenario works with: nothing but public HTTP. */
export interface Tools {
  as(holder: Holder): ApiClient;
  sandbox: SandboxClient;
  /** A name that no scenario of any tour had before. */
  unique(): string;
}

export function createTools(fleet: { api_url: string; sandbox_url: string }, keys: DemoKeys): Tools {
  const clients = new Map<Holder, ApiClient>();
  const started = Date.now().toString(36);
  let made = 0;
  return {
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
    unique: () => `tour_${started}_${process.pid}_${++made}`,
  };
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
