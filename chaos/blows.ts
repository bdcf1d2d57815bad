import { setTimeout as delay } from 'node:timers/promises';
import type { Service } from '@counterstamp/manifest-core';
import type { FaultInput } from '@counterstamp/sandbox';
import type { Chance } from './chance.ts';
import type { ChaosFleet } from './harness.ts';

/** Share of runs whose provider misbehaves. */
const FAULTY = 0.35;

type Strike = (chaos: ChaosFleet, chance: Chance) => Promise<void>;
const VICTIMS: readonly [Service, ...Service[]] = [
  'executor',
  'executor',
  'reconciler',
  'verifier',
  'preflight',
  'api',
];

/** What happens to a fleet: more often to its executors. */
export const BLOWS: readonly [{ name: string; strike: Strike }, ...{ name: string; strike: Strike }[]] = [
  { name: 'SIGKILL', strike: killOne },
  { name: 'SIGKILL', strike: killOne },
  { name: 'SIGKILL', strike: killOne },
  { name: 'SIGSTOP, later SIGCONT', strike: stopOne },
  { name: 'SIGSTOP, later SIGCONT', strike: stopOne },
  { name: 'queue wiped', strike: (chaos) => chaos.wipeQueue(false) },
  { name: 'queue wiped, Redis restarted', strike: (chaos) => chaos.wipeQueue() },
  {
    name: 'Postgres restarted',
    strike: async (chaos) => {
      await chaos.restartPostgres();
    },
  },
  {
    name: 'provider cut off for half a second',
    strike: async ({ provider }) => {
      await provider.cut();
      await delay(500);
      await provider.heal();
    },
  },
];

async function killOne(chaos: ChaosFleet, chance: Chance): Promise<void> {
  const service = chance.pick(VICTIMS);
  const [first, ...others] = chaos.living(service).filter((each) => each.port !== 0);
  if (first !== undefined) await chaos.kill(chance.pick([first, ...others]));
  // As a supervisor would; a database that is away just then lets it try again at the next blow.
  void chaos.refill().catch(() => undefined);
}

async function stopOne(chaos: ChaosFleet, chance: Chance): Promise<void> {
  const service = chance.pick(VICTIMS);
  const [first, ...others] = chaos.living(service);
  if (first === undefined) return;
  const { child } = chance.pick([first, ...others]);
  child.kill('SIGSTOP');
  setTimeout(() => child.kill('SIGCONT'), 500 + chance.below(7_500));
}

/** What meets the requests of one run at its provider: mostly nothing. */
export function someFaults(workflow: 'refund' | 'credit', chance: Chance): readonly FaultInput[] {
  if (!chance.happens(FAULTY)) return [];
  const both: readonly [FaultInput, ...FaultInput[]] = [
    { kind: 'cut_before_accept' },
    { kind: 'cut_before_accept', reset: true },
    { kind: 'cut_after_accept' },
    { kind: 'hang_after_accept', hold_ms: 3_000 },
    { kind: 'accept_late', delay_ms: 900 },
    { kind: 'error_after_accept', status: 500 },
    { kind: 'html_after_accept', status: 502 },
    { kind: 'truncated_after_accept' },
    { kind: 'reject', status: 503, code: 'unavailable', store: false },
  ];
  if (workflow === 'credit') return [chance.pick(both)];
  return [
    chance.pick([
      ...both,
      { kind: 'pending_then_succeeded', after_ms: 1_000 },
      { kind: 'pending_then_failed', after_ms: 1_000 },
      { kind: 'reject', status: 409, code: 'idempotency_key_in_use' },
    ]),
  ];
}
