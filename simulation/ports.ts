import type { Connector, ConnectorContract, Outcome } from '@counterstamp/connectors';
import { LEGACY_CREDITS_CONTRACT, SANDBOX_PAYMENTS_CONTRACT } from '@counterstamp/connectors';
import type {
  Clock,
  DispatchCommit,
  DispatchOutcome,
  Durations,
  Failpoint,
  HttpReply,
  Limits,
  LoadedRun,
  Queue,
  ReadHttp,
  RunId,
  Store,
} from '@counterstamp/manifest-core';
import { StoreUnavailable } from '@counterstamp/manifest-store';
import type { OneShotConnection, openOneShot } from '@counterstamp/stage-runtime';
import type { Logger, Metrics } from '@counterstamp/telemetry';
import { createSystems, type Systems, type Workflow } from '@counterstamp/workflows';
import { StoreRefusal } from './memory-store.ts';
import { Killed, type ProcessLife } from './process-life.ts';
import type { ProviderKind, Reception } from './provider.ts';
import { NEVER, type Task } from './scheduler.ts';
import { REVERSAL_HORIZON_MS, SIMULATION_LIMITS, VISIBILITY_MS, type World } from './world.ts';

/** What one process life sees of the world; the real worker functions run on this. */
export interface Ports {
  store: Store;
  queue: Queue;
  clock: Clock;
  failpoint: Failpoint;
  http: ReadHttp;
  open: typeof openOneShot;
  systems: Systems;
  durations: Durations;
  limits: Limits;
  log: Logger;
  metrics: Metrics;
}

export function portsOf(world: World, life: ProcessLife): Ports {
  const http = readHttp(world, life);
  return {
    store: storeOf(world, life),
    queue: queueOf(world, life),
    clock: clockOf(world, life),
    failpoint: failpointOf(world, life),
    http,
    open: oneShotOf(world, life),
    systems: systemsOf(world, http),
    durations:
      world.lacks('settle') && life.service === 'reconciler'
        ? { ...world.durations, pause_ms: 1, provider_ms: 1 }
        : world.durations,
    limits: limitsOf(world),
    log: logOf(world, life),
    metrics: METRICS,
  };
}

function limitsOf(world: World): Limits {
  const limits = { ...SIMULATION_LIMITS };
  if (world.lacks('bounded-verify')) limits.verification_waits_max = 1_000_000;
  if (world.lacks('bounded-looks')) limits.look_ups_max = 1_000_000;
  return limits;
}

// ---------------------------------------------------------------------------------------------------------------- time

function clockOf(world: World, life: ProcessLife): Clock {
  const { scheduler } = world;
  const monotonicMs = () => (life.asleepSinceMs ?? scheduler.nowMs) - life.monotonicLostMs;
  return {
    monotonicMs,
    wallMs: () => scheduler.nowMs + life.wallSkewMs,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (!life.alive) return;
        const wake = () => resolve();
        const task = scheduler.add({
          name: `${life.name} wakes`,
          owner: life,
          earliestMs: scheduler.nowMs + ms,
          run: wake,
        });
        signal?.addEventListener('abort', () => {
          scheduler.remove(task);
          wake();
        });
      }),
    after: (ms, callback) => {
      if (!life.alive) return () => undefined;
      const task = scheduler.add({
        name: `${life.name} timer`,
        owner: life,
        earliestMs: scheduler.nowMs + ms,
        run: callback,
      });
      return () => scheduler.remove(task);
    },
  };
}

function failpointOf(world: World, life: ProcessLife): Failpoint {
  const count = (name: Parameters<Failpoint['reach']>[0]) =>
    world.failpoints.set(name, (world.failpoints.get(name) ?? 0) + 1);
  return {
    reach: (name) => {
      count(name);
      return world.step(life, name);
    },
    reachSync: (name) => {
      if (!life.alive) throw new Killed(life.name);
      count(name);
      if (!world.wild || !world.dice.chance(0.02)) return;
      world.note(`${life.name} is killed at ${name}`);
      world.kill(life, () => world.dice.chance(0.5));
      throw new Killed(life.name);
    },
  };
}

// ---------------------------------------------------------------------------------------------------------------- database

/** How many calls of the database take long, and how long at most: behind a lock, or on the way. */
const LATE_CALLS = 0.05;
const LATE_CALL_MS = 5_000;
/** How many requests take their time in the network, up to what is assumed of it. */
const LATE_REQUESTS = 0.4;
const STORE_FAULTS = ['lost-before', 'lost-after'] as const;

/** A call of the database: it happens there, and then its answer comes back. Either way may be lost. */
function call<T>(world: World, life: ProcessLife, name: string, work: () => T): Promise<T> {
  const { scheduler } = world;
  return new Promise((resolve, reject) => {
    if (!life.alive) return;
    const answer = (text: string, settle: () => void) =>
      scheduler.add({ name: `${life.name} ← ${name}${text}`, owner: life, run: settle });
    scheduler.add({
      name: `${life.name} → ${name}`,
      client: life,
      faults: STORE_FAULTS,
      earliestMs: world.sometimesLater(LATE_CALLS, LATE_CALL_MS),
      tookMs: 1,
      risk: 0.3,
      run: (mode) => {
        const unavailable = () => reject(new StoreUnavailable('the database does not answer (simulated)'));
        if (mode === 'lost-before') {
          world.counts.calls_lost += 1;
          if (life.alive) answer(' lost', unavailable);
          return;
        }
        try {
          const result = work();
          if (!life.alive) return;
          if (mode === 'lost-after') {
            world.counts.ambiguous_commits += 1;
            answer(' lost', unavailable);
          } else answer('', () => resolve(result));
        } catch (error) {
          if (life.alive) answer(' refused', () => reject(error));
        }
      },
    });
  });
}

function storeOf(world: World, life: ProcessLife): Store {
  const { store } = world;
  const { service, instance_id } = life;
  const by = { service, instance_id };
  const named = (name: string, run_id: RunId) => `${name} ${world.nameOf(run_id)}`;
  const port: Store = {
    load: (run_id) => call(world, life, named('load', run_id), () => seen(world, life, store.load(run_id))),
    commitStage: (commit) =>
      call(world, life, named(commit.on, commit.run_id), () => {
        const outcome = store.commitStage(by, commit);
        if (outcome.kind === 'stale_revision') world.counts.stale_swaps += 1;
        return outcome;
      }),
    commitDispatch: (commit) => dispatchOf(world, life, commit),
    appendEvidence: (late) => {
      if (service !== 'executor' && service !== 'reconciler')
        throw new StoreRefusal('CS005', `${service} may not do this`);
      return call(world, life, named('append evidence', late.run_id), () =>
        store.appendEvidence({ service, instance_id }, late, world.ids),
      );
    },
    defer: (run_id, expected, wake_in_ms) =>
      call(world, life, named('defer', run_id), () => store.defer(service, run_id, expected, wake_in_ms)),
    claimDue: (claim) => call(world, life, 'claim due', () => store.claimDue(claim)),
    audit: (entry) => call(world, life, 'audit', () => store.audit(service, entry)),
    beat: () => call(world, life, 'beat', () => store.beat(instance_id, service)),
    endInstance: () => call(world, life, 'end instance', () => void store.endInstance(instance_id, 'self')),
  };
  return port;
}

function isoNow(world: World): string {
  return new Date(world.scheduler.nowMs).toISOString();
}

/** A load as this process sees it: without some rules, differently from what it is. */
function seen(world: World, life: ProcessLife, run: LoadedRun | undefined): LoadedRun | undefined {
  if (run === undefined) return undefined;
  if (world.lacks('observed-at-before-read') && life.service === 'reconciler')
    // The clock is read when the look is judged, not before the read.
    return {
      manifest: run.manifest,
      get nowMs() {
        return world.scheduler.nowMs;
      },
      get now() {
        return isoNow(world);
      },
    };
  if (life.service !== 'executor') return run;
  const { manifest } = run;
  if (world.lacks('foreign-attempt-never-sends') && manifest.state === 'executing')
    return { ...run, manifest: { ...manifest, state: 'awaiting_approval', decisions_sufficient: true } };
  if (world.lacks('clear-rejection-of-the-first-alone'))
    return {
      ...run,
      manifest: { ...manifest, attempts: manifest.attempts.map((attempt) => ({ ...attempt, status: 'not_sent' })) },
    };
  return run;
}

/** The dispatch commit; without its rules, what a worker that breaks them would take for one. */
function dispatchOf(world: World, life: ProcessLife, commit: DispatchCommit): Promise<DispatchOutcome> {
  const { store, scheduler } = world;
  const name = `${commit.retry === null ? 'dispatch' : 'retry'} ${world.nameOf(commit.run_id)}`;
  const askedMs = scheduler.nowMs;
  const pretended = (): DispatchOutcome => ({
    kind: 'committed',
    row: {
      run_id: commit.run_id,
      revision: commit.expected + 1,
      state: 'executing',
      evidence_complete: true,
      decisions_sufficient: true,
      retry_allowed: false,
      parked_reason: null,
      wake_at: isoNow(world),
      tenant_in_line: 1,
    },
    attempt_n: 1,
    started_at: isoNow(world),
    budget_ms: commit.call_deadline_ms,
  });
  if (world.lacks('commit-before-send')) {
    call(world, life, name, () => store.commitDispatch(life.instance_id, commit)).catch(() => undefined);
    return call(world, life, `${name} (not awaited)`, pretended);
  }
  const work = (): DispatchOutcome => {
    const run = store.runs.get(commit.run_id);
    const open = run?.attemptRows.find((attempt) => attempt.status === 'started');
    if (world.lacks('foreign-attempt-never-sends') && run?.state === 'executing' && open !== undefined)
      return {
        ...pretended(),
        row: { ...(pretended() as { row: object }).row, revision: run.revision },
      } as DispatchOutcome;
    const outcome = store.commitDispatch(life.instance_id, commit);
    if (outcome.kind === 'stale_revision') world.counts.stale_swaps += 1;
    return outcome;
  };
  if (world.lacks('attempt-in-same-transaction')) {
    return call(world, life, name, () => {
      const outcome = work();
      const attempts = store.runs.get(commit.run_id)?.attemptRows;
      const attempt = outcome.kind === 'committed' ? attempts?.pop() : undefined;
      return { outcome, attempts, attempt };
    }).then(({ outcome, attempts, attempt }) =>
      call(world, life, `${name}: insert attempt`, () => {
        if (attempt !== undefined) attempts?.push(attempt);
        return outcome;
      }),
    );
  }
  const committing = call(world, life, name, work);
  if (world.lacks('only-winner-sends'))
    return committing.then(
      (outcome) => (outcome.kind === 'stale_revision' ? pretended() : outcome),
      (error: unknown) => {
        if (error instanceof StoreUnavailable) return pretended();
        throw error;
      },
    );
  if (world.lacks('t0-before-begin'))
    return committing.then((outcome) =>
      outcome.kind === 'committed'
        ? { ...outcome, budget_ms: outcome.budget_ms + (scheduler.nowMs - askedMs) }
        : outcome,
    );
  return committing;
}

// ---------------------------------------------------------------------------------------------------------------- queue

const HINT_FAULTS = ['dropped', 'doubled'] as const;

function queueOf(world: World, life: ProcessLife): Queue {
  return {
    hint: (stage, hint) =>
      new Promise((resolve) => {
        if (!life.alive) return;
        world.scheduler.add({
          name: `${life.name} hints ${stage} ${world.nameOf(hint.run_id)}`,
          owner: life,
          faults: HINT_FAULTS,
          run: (mode) => {
            if (mode === 'dropped') world.counts.hints_dropped += 1;
            else world.send(stage, hint);
            if (mode === 'doubled') {
              world.counts.hints_doubled += 1;
              world.send(stage, hint);
            }
            resolve();
          },
        });
      }),
  };
}

// ---------------------------------------------------------------------------------------------------------------- reads

const READ_FAULTS = ['unreachable', 'error'] as const;
const ANSWER_FAULTS = ['lost'] as const;

function readHttp(world: World, life: ProcessLife): ReadHttp {
  const { scheduler, provider } = world;
  return {
    get: (url) =>
      new Promise((resolve) => {
        if (!life.alive) return;
        const what = shortUrl(url);
        const timeout = () => resolve({ kind: 'unreachable', reason: 'timeout', detail: 'simulated' });
        const startedMs = scheduler.nowMs;
        scheduler.add({
          name: `${life.name} asks ${what}`,
          client: life,
          faults: READ_FAULTS,
          risk: 0.2,
          run: (mode) => {
            const reply: HttpReply =
              mode === 'error' || provider.readsFail
                ? { kind: 'reply', status: 503, headers: {}, body: new Uint8Array() }
                : provider.read(url);
            if (!life.alive) return;
            const reached = mode !== 'unreachable';
            scheduler.add({
              name: `${life.name} ← ${what}`,
              owner: life,
              faults: ANSWER_FAULTS,
              risk: 0.2,
              run: (lost) => {
                // A stopped process finds the answer in its socket when it goes on; a running one would have given up.
                if (reached && lost !== 'lost') resolve(reply);
                else
                  scheduler.add({
                    name: `${life.name} gives up on ${what}`,
                    owner: life,
                    earliestMs: startedMs + world.durations.read_timeout_ms,
                    run: timeout,
                  });
              },
            });
          },
        });
      }),
  };
}

/** What is asked for, without host and system. */
function shortUrl(url: string): string {
  return /^http:\/\/[^/]*\/[^/]*\/([^?]*)/.exec(url)?.[1] ?? url;
}

// ---------------------------------------------------------------------------------------------------------------- the one send

const CONNECT_FAULTS = ['refused', 'dns', 'breaks-soon'] as const;
const RECEPTIONS: Readonly<Record<string, Reception>> = {
  rejected: 'reject',
  'rate-limited': 'rate_limit',
  'fails-before': 'fail_before',
  'fails-after': 'fail_after',
  html: 'html_after',
  'other-amount': 'apply_other_amount',
  'in-progress': 'in_progress',
};
const ANY_DELIVERY = ['request-lost', 'rejected', 'fails-before', 'fails-after', 'html'] as const;
const REPLY_FAULTS = ['lost', 'truncated'] as const;

function deliveryFaults(kind: ProviderKind): readonly string[] {
  switch (kind) {
    case 'strong':
    case 'eventual':
      return ANY_DELIVERY;
    case 'partial':
      return [...ANY_DELIVERY, 'rate-limited', 'doubled', 'other-amount'];
    default:
      return [...ANY_DELIVERY, 'rate-limited', 'doubled', 'in-progress'];
  }
}

function oneShotOf(world: World, life: ProcessLife): typeof openOneShot {
  const { scheduler } = world;
  let opened = 0;
  return (request) =>
    new Promise((resolve) => {
      if (!life.alive) return;
      const n = ++opened;
      scheduler.add({
        name: `${life.name} connects`,
        owner: life,
        faults: CONNECT_FAULTS,
        risk: 0.7,
        run: (mode) => {
          if (mode === 'refused' || mode === 'dns')
            return resolve({ kind: 'not_sent', reason: mode, detail: 'simulated' });
          const breaksMs = mode === 'breaks-soon' ? scheduler.nowMs + world.dice.int(50) : NEVER;
          const key = request.headers['idempotency-key'] ?? null;
          const sentKey = key !== null && world.lacks('same-key-on-retry') ? `${key}-${life.name}-${n}` : key;
          resolve({ kind: 'open', connection: connectionOf(world, life, { ...request, key: sentKey }, breaksMs) });
        },
      });
    });
}

function connectionOf(
  world: World,
  life: ProcessLife,
  request: { bodyLength: number; key: string | null },
  breaksMs: number,
): OneShotConnection {
  const { scheduler } = world;
  let phase: 'open' | 'sent' | 'over' = 'open';
  let finish: (result: Awaited<ReturnType<OneShotConnection['send']>>) => void = () => undefined;
  let timer: Task | undefined;
  const over = (result: Awaited<ReturnType<OneShotConnection['send']>>) => {
    if (phase === 'over') return;
    phase = 'over';
    if (timer !== undefined) scheduler.remove(timer);
    finish(result);
  };
  const connection: OneShotConnection = {
    get destroyed() {
      return phase !== 'open' || scheduler.nowMs >= breaksMs;
    },
    send(bytes, { storedBytes, mayStillSend, timeoutMs, onSend }) {
      if (connection.destroyed) {
        phase = 'over';
        return Promise.resolve({ kind: 'not_sent', reason: 'destroyed', detail: 'simulated' });
      }
      if (bytes.length !== request.bodyLength || Buffer.compare(bytes, storedBytes) !== 0) {
        phase = 'over';
        return Promise.resolve({
          kind: 'not_sent',
          reason: 'bytes_differ',
          detail: 'the body is not the stored bytes',
        });
      }
      if (!mayStillSend() && !world.lacks('deadline-check-before-send')) {
        phase = 'over';
        return Promise.resolve({ kind: 'not_sent', reason: 'late', detail: 'the time to send had passed' });
      }
      // From the check to the write the process does nothing else, yet it may be stopped (A1) or killed in between.
      const write = scheduler.add({
        name: `${life.name} writes the request`,
        owner: life,
        latestMs: world.assumptions.a1 ? scheduler.nowMs + world.durations.pause_ms : NEVER,
        run: () => {
          life.blockedBy = null;
          if (phase !== 'open') return;
          phase = 'sent';
          world.counts.sends += 1;
          const body = world.lacks('frozen-bytes') ? currentBytes(world, bytes) : Uint8Array.from(bytes);
          const back = { life, over };
          transmit(world, request.key, body, back);
          if (world.lacks('no-transport-retry')) transmit(world, request.key, body, back);
          timer = scheduler.add({
            name: `${life.name} call times out`,
            owner: life,
            earliestMs: scheduler.nowMs + timeoutMs,
            run: () => over(noReply(world, 'timeout')),
          });
          onSend?.();
        },
      });
      life.blockedBy = write;
      return new Promise((resolve) => {
        finish = resolve;
      });
    },
    close() {
      if (!life.alive) return;
      over(
        phase === 'open'
          ? { kind: 'not_sent', reason: 'destroyed', detail: 'closed here' }
          : { kind: 'no_reply', reason: 'aborted', detail: 'closed here' },
      );
    },
  };
  return connection;
}

/** What a missing answer is taken for. */
function noReply(
  world: World,
  reason: 'timeout' | 'reset' | 'truncated',
): Awaited<ReturnType<OneShotConnection['send']>> {
  if (world.lacks('not-sent-means-no-byte')) return { kind: 'not_sent', reason: 'aborted', detail: 'simulated' };
  if (!world.lacks('timeout-is-uncertain')) return { kind: 'no_reply', reason, detail: 'simulated' };
  const code = world.provider.kind === 'eventual' ? 'invalid_request' : 'charge_disputed';
  const status = world.provider.kind === 'eventual' ? 400 : 402;
  return { kind: 'reply', status, headers: {}, body: new TextEncoder().encode(JSON.stringify({ code })) };
}

/** The request as a worker would make it anew from what its source says now. */
function currentBytes(world: World, bytes: Uint8Array): Uint8Array {
  const body = JSON.parse(new TextDecoder().decode(bytes)) as {
    payment_id?: string;
    customer_id?: string;
    amount: number;
  };
  const found = world.provider.cases.find(
    ({ payment_id, customer_id }) => payment_id === body.payment_id || customer_id === body.customer_id,
  );
  return new TextEncoder().encode(JSON.stringify({ ...body, amount: found?.currentAmount ?? body.amount }));
}

/** One copy of a request on its way: it arrives within P or never (A2), unless the provider is slower than it declares. */
function transmit(
  world: World,
  key: string | null,
  body: Uint8Array,
  back: { life: ProcessLife; over: (result: Awaited<ReturnType<OneShotConnection['send']>>) => void },
): void {
  const { scheduler, provider } = world;
  const { life, over } = back;
  const latestMs = scheduler.nowMs + (provider.kind === 'slow' ? world.slowMs : world.durations.provider_ms);
  const answer = (reply: HttpReply) => {
    if (!life.alive) return;
    scheduler.add({
      name: `${life.name} ← answer ${reply.status}`,
      owner: life,
      faults: REPLY_FAULTS,
      risk: 4,
      run: (mode) => {
        if (mode === 'go') over(reply);
        else {
          world.counts.answers_lost += 1;
          if (mode === 'truncated') over(noReply(world, 'truncated'));
        }
      },
    });
  };
  const copy = (faults: readonly string[], name: string, again = false) =>
    scheduler.add({
      name,
      earliestMs: world.sometimesLater(LATE_REQUESTS, latestMs - scheduler.nowMs),
      latestMs,
      faults,
      risk: 4,
      run: (mode) => {
        if (mode === 'request-lost') return;
        if (mode === 'doubled') {
          world.counts.requests_doubled += 1;
          copy(['request-lost', 'in-progress'], 'the request arrives again', true);
        }
        const lag = provider.kind === 'eventual' ? world.dice.int(VISIBILITY_MS + 1) : 0;
        const { reply, effect } = provider.take(key, body, RECEPTIONS[mode] ?? 'apply', lag, again);
        if (effect !== null) {
          world.counts.effects += 1;
          world.note(`· effect ${effect.ref} of ${effect.amount}`);
          if (effect.status === 'pending') settleLater(world, effect);
        }
        answer(reply);
      },
    });
  copy(deliveryFaults(provider.kind), 'the request arrives');
}

/** Longest time that an accepted effect stays pending. */
const PENDING_MS = 15_000;

function settleLater(
  world: World,
  effect: { ref: string; status: 'succeeded' | 'pending' | 'failed'; finalMs: number | null },
): void {
  world.scheduler.add({
    name: `${effect.ref} settles`,
    latestMs: world.scheduler.nowMs + PENDING_MS,
    faults: ['fails'],
    run: (mode) => {
      effect.status = mode === 'fails' ? 'failed' : 'succeeded';
      effect.finalMs = mode === 'fails' ? null : world.scheduler.nowMs;
    },
  });
}

// ---------------------------------------------------------------------------------------------------------------- systems

/** What each kind of target declares: the contract that its workers believe. */
export function contractOf({ provider, retentionMs }: World): ConnectorContract {
  const key = SANDBOX_PAYMENTS_CONTRACT.idempotency;
  if (key.kind !== 'key') throw new Error('the payments keep keys');
  switch (provider.kind) {
    case 'strong':
      return { ...SANDBOX_PAYMENTS_CONTRACT, idempotency: { kind: 'none' }, settlement: 'sync', reversalHorizonMs: 0 };
    case 'eventual':
      return LEGACY_CREDITS_CONTRACT;
    case 'forgetful':
    case 'slow':
      return {
        ...SANDBOX_PAYMENTS_CONTRACT,
        idempotency: { ...key, retentionMs, safetyMarginMs: 0 },
        reversalHorizonMs: 0,
      };
    case 'pending':
      return { ...SANDBOX_PAYMENTS_CONTRACT, reversalHorizonMs: REVERSAL_HORIZON_MS };
    case 'key':
    case 'partial':
      return { ...SANDBOX_PAYMENTS_CONTRACT, reversalHorizonMs: 0 };
  }
}

function believedContract(world: World): ConnectorContract {
  const contract = contractOf(world);
  const key = SANDBOX_PAYMENTS_CONTRACT.idempotency;
  if (key.kind !== 'key') return contract;
  if (world.lacks('retry-only-idempotent')) return { ...contract, idempotency: key };
  if (world.lacks('retention-margin')) return { ...contract, idempotency: key };
  return contract;
}

function systemsOf(world: World, http: ReadHttp): Systems {
  const systems = createSystems({
    shop_url: 'http://provider.sim',
    payments_url: 'http://provider.sim',
    payments_read_key: 'read',
    payments_write_key: 'write',
    ...(world.provider.kind === 'eventual'
      ? { credits: { url: 'http://provider.sim', read_key: 'read', write_key: 'write' } }
      : {}),
    read_timeout_ms: world.durations.read_timeout_ms,
    http,
  });
  const name = world.provider.kind === 'eventual' ? 'credit' : 'refund';
  const workflow = systems.workflows.get(name);
  if (workflow === undefined) throw new Error(`no workflow ${name}`);
  const contract = believedContract(world);
  const connector = connectorOf(world, { ...workflow.connector, contract });
  const bound: Workflow = { ...workflow, contract, connector };
  return { ...systems, workflows: new Map([[name, bound]]) };
}

/** The real connector; without a rule that stands in connectors, one that breaks it. */
function connectorOf(world: World, connector: Connector): Connector {
  if (world.lacks('conflict-is-uncertain'))
    return {
      ...connector,
      execute: async (prepared, transport): Promise<Outcome> => {
        const outcome = await connector.execute(prepared, transport);
        const conflict = outcome.class === 'uncertain' && outcome.reason.startsWith('idempotency_');
        return conflict ? { class: 'rejected', code: outcome.reason, retryable: 'never' } : outcome;
      },
    };
  const looser = world.lacks('final-status-only') || world.lacks('full-compare') || world.lacks('match-by-reference');
  if (!looser) return connector;
  return {
    ...connector,
    observe: async (action, bind) => {
      const observed = await connector.observe(action, bind);
      if (observed.kind !== 'found') return observed;
      if (observed.match === 'exact' && world.lacks('final-status-only'))
        return { ...observed, effect: { ...observed.effect, settlement: 'final' } };
      if (observed.match === 'different' && world.lacks('full-compare'))
        return { kind: 'found', match: 'exact', effect: observed.effect };
      const [first] = observed.match === 'lookalike' ? observed.effects : [];
      if (first !== undefined && world.lacks('match-by-reference'))
        return { kind: 'found', match: 'exact', effect: first };
      return observed;
    },
  };
}

// ---------------------------------------------------------------------------------------------------------------- telemetry

const METRICS: Metrics = new Proxy({} as Metrics, { get: () => () => undefined });

/** Keeps only what may never happen: an error that is neither an outage nor this simulation's own kill. */
function logOf(world: World, life: ProcessLife): Logger {
  const quiet = () => undefined;
  const log = {
    debug: quiet,
    info: quiet,
    warn: quiet,
    error: (fields: { err?: unknown }, message: string) => {
      const { err } = fields;
      // An alarm carries no error: what it tells of was done by a script of ours.
      if (err === undefined || !life.alive || err instanceof StoreUnavailable || err instanceof Killed) return;
      world.faults.push(
        `${life.name}: ${message}: ${err instanceof Error ? `${err.name} ${err.message}` : JSON.stringify(err)}`,
      );
    },
    child: () => log,
  };
  return log as unknown as Logger;
}
