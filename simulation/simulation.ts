import { createHash } from 'node:crypto';
import type { RunId, Stage, State, StoredEvent } from '@counterstamp/manifest-core';
import { StoreUnavailable } from '@counterstamp/manifest-store';
import { createStageLoop, type Judge } from '@counterstamp/stage-runtime';
import { executorStages } from '../services/executor/src/stages.ts';
import { preflightStages } from '../services/preflight/src/stages.ts';
import { reconcilerStages } from '../services/reconciler/src/stages.ts';
import { sweepOnce } from '../services/reconciler/src/sweeper.ts';
import { verifierStages } from '../services/verifier/src/stages.ts';
import { Dice } from './dice.ts';
import { judge } from './history.ts';
import {
  checkCommit,
  checkEffect,
  checkEvidence,
  checkLive,
  checkStates,
  checkSurfaced,
  type Invariant,
  InvariantViolation,
  rests,
  type Violation,
} from './invariants.ts';
import type { MemoryRun } from './memory-run.ts';
import { People } from './people.ts';
import { type Ports, portsOf } from './ports.ts';
import { Killed, ProcessLife, type WorkerService } from './process-life.ts';
import type { ProviderKind } from './provider.ts';
import { PROVIDER_KINDS } from './provider.ts';
import { isStoreRule, type PortRule, type Rule } from './rules.ts';
import { NEVER, type Task } from './scheduler.ts';
import { type Assumptions, type Counts, PACES, type Pace, REVERSAL_HORIZON_MS, START_MS, World } from './world.ts';

export interface SimulationOptions {
  /** Everything that happens follows from it. */
  seed: number;
  /** Absent: the seed picks one. */
  provider?: ProviderKind;
  /** Rules that are taken away. Nothing but this argument ever does. */
  without?: readonly Rule[];
  /** Assumptions about the world that do not hold. */
  assumptions?: Partial<Assumptions>;
  /** Invariants that the missing assumption excuses. */
  excused?: readonly Invariant[];
  /** Steps in which the seed decides; in all others everything goes on in order. Absent: every step of the first phase. */
  wild?: ReadonlySet<number>;
  /** What the seed decides about the world before the first step. */
  shape?: Partial<Shape>;
}

/** How much of what goes wrong in one world; drawn from the seed, so that seeds differ in kind and not only in order. */
export interface Shape {
  runs: number;
  /** Whether two runs are about one external resource. */
  sharedResource: boolean;
  amountMinor: number;
  approvalLifeMs: number | null;
  executors: number;
  /** Up to where everything goes in order before the seed begins to decide. */
  begin: 'request' | 'approval' | 'approved' | 'dispatched';
  /** Whether what is stopped stays so until others have gone on without it. */
  longStops: boolean;
  /** How readily time goes on, beside everything else that could happen. */
  haste: number;
  /** Steps of the first phase. */
  wildSteps: number;
  /** Probability that a thing that can go wrong does. */
  faultRate: number;
  /** Kinds of faults that this world knows. */
  faults: ReadonlySet<string>;
  clock: 'sleeps' | 'jumps' | 'right';
  pace: Pace;
  /** Follow closed runs to the last closure audit. */
  audits: boolean;
}

export interface SimulationResult {
  seed: number;
  provider: ProviderKind;
  violation: Violation | null;
  /** How each run ended, in the order of creation. */
  outcomes: { run: string; state: State; code: string | null; attempts: number }[];
  counts: Counts;
  trace: readonly string[];
  /** Digest of the whole trace: the same seed has the same. */
  traceHash: string;
  /** Steps in which the seed decided. */
  wildSteps: number;
  virtualMs: number;
}

/** Where in a trace the part in order ends. */
export const SEED_DECIDES = '— the seed decides —';
/** After healing, a run rests within so much virtual time: every wait of the protocol ends far below it, the run's own deadline (10 min) does not count. */
const LIVE_MS = 5 * 60_000;
const LIVE_STEPS = 6_000;
const CONCURRENCY = 2;
const BEAT_MS = 5_000;
const SERVICE_OF: Readonly<Record<Stage, WorkerService>> = {
  preflight: 'preflight',
  collect: 'preflight',
  propose: 'preflight',
  execute: 'executor',
  verify: 'verifier',
  reconcile: 'reconciler',
};
/** Every kind of fault; a world knows some of them. */
const FAULTS = [
  'kill',
  'database',
  'queue',
  'pause',
  'wipe',
  'lease',
  'clock',
  'hold',
  'amend',
  'source',
  'lookalike',
  'undo',
  'lost-before',
  'lost-after',
  'dropped',
  'doubled',
  'unreachable',
  'error',
  'lost',
  'truncated',
  'refused',
  'dns',
  'breaks-soon',
  'request-lost',
  'rejected',
  'rate-limited',
  'fails-before',
  'fails-after',
  'html',
  'other-amount',
  'in-progress',
  'fails',
  'rejects',
  'closes-the-form',
  'still-unknown',
  'look-again',
  'waived',
] as const;

interface Worker {
  life: ProcessLife;
  ports: Ports;
  work: (stage: Stage, hint: { run_id: RunId; revision: number }) => Promise<void>;
}

interface Option {
  name: string;
  weight: number;
  run: () => void;
}

/** One world, one schedule. The real workers run in it; the seed decides every step. */
export class Simulation {
  readonly world: World;
  readonly people: People;
  readonly shape: Shape;
  /** Tasks that a script keeps back, by name; an assumption about the world may force them all the same. */
  held: RegExp[] = [];
  readonly #options: SimulationOptions;
  readonly #workers: Worker[] = [];
  readonly #wanted: Record<WorkerService, number>;
  readonly #born = new Map<WorkerService, number>();
  #steps = 0;
  #wildSteps = 0;
  #effectsChecked = 0;
  #violation: Violation | null = null;
  #sweeps = true;
  /** While everything goes in order up to where the seed takes over: nothing is dispatched yet. */
  #beginning = false;

  constructor(options: SimulationOptions) {
    this.#options = options;
    const dice = new Dice(options.seed, -1);
    // Drawn in any case: a seed is the same world whether its provider is named or not.
    const drawn = dice.pick(PROVIDER_KINDS);
    const kind = options.provider ?? drawn;
    this.shape = { ...drawShape(dice, kind), ...options.shape };
    const without = options.without ?? [];
    this.#sweeps = !without.includes('sweeper');
    this.world = new World({
      seed: options.seed,
      kind,
      portRules: new Set(without.filter((rule): rule is PortRule => !isStoreRule(rule))),
      storeRules: without.filter(isStoreRule),
      assumptions: { a1: true, ...options.assumptions },
      durations: PACES[this.shape.pace],
      onCommit: (run, event) => this.#committed(run, event),
    });
    this.people = new People(this.world, this.shape.approvalLifeMs);
    this.#wanted = { preflight: 1, executor: this.shape.executors, verifier: 1, reconciler: 2 };
    for (const service of ['preflight', 'executor', 'verifier', 'reconciler'] as const)
      for (let n = 0; n < this.#wanted[service]; n++) this.start(service);
    for (let n = 1; n <= this.shape.runs; n++) {
      const shared = this.shape.sharedResource ? 1 : n;
      const about = {
        tenant_id: 'shop_north',
        request_id: `case_${n}`,
        order_id: `order_${shared}`,
        payment_id: `pay_${shared}`,
        customer_id: `customer_${shared}`,
        amount_minor: this.shape.amountMinor,
        status: 'open' as const,
        orderStatus: 'delivered' as const,
        version: 1,
        currentAmount: this.shape.amountMinor,
      };
      this.world.provider.cases.push(about);
      this.people.request(about);
    }
  }

  // ------------------------------------------------------------------------------------------------------------ processes

  start(service: WorkerService): ProcessLife {
    const n = (this.#born.get(service) ?? 0) + 1;
    this.#born.set(service, n);
    const { world } = this;
    const life = new ProcessLife(service, n);
    world.lives.push(life);
    const ports = portsOf(world, life);
    world.store.beat(life.instance_id, service);
    if (service === 'executor') world.store.takeLease(life.instance_id);
    const { store, queue, clock, failpoint, log, metrics } = ports;
    const judges = judgesOf(service, ports, world);
    this.#workers.push({
      life,
      ports,
      work: createStageLoop({ store, queue, clock, failpoint, log, metrics, judges }),
    });
    return life;
  }

  /** SIGKILL. Postgres frees the lease at once unless the connection seems to live on. */
  kill(life: ProcessLife, orphans: (task: Task) => boolean = () => true, leaseFreeInMs = 0): void {
    this.world.kill(life, orphans);
    this.#gone(life, leaseFreeInMs);
  }

  #gone(life: ProcessLife, leaseFreeInMs: number): void {
    const { store, scheduler } = this.world;
    if (leaseFreeInMs === 0) {
      store.dropLease(life.instance_id);
      return;
    }
    scheduler.add({
      name: `the session of ${life.name} is noticed to be gone`,
      latestMs: scheduler.nowMs + leaseFreeInMs,
      run: () => store.dropLease(life.instance_id),
    });
  }

  pause(life: ProcessLife, asleep = false): void {
    life.paused = true;
    if (asleep) {
      life.asleepSinceMs = this.world.scheduler.nowMs;
      this.world.counts.sleeps += 1;
    } else this.world.counts.pauses += 1;
  }

  resume(life: ProcessLife): void {
    life.paused = false;
    if (life.asleepSinceMs !== null) life.monotonicLostMs += this.world.scheduler.nowMs - life.asleepSinceMs;
    life.asleepSinceMs = null;
  }

  /** A living process by its name, such as executor-1. */
  life(name: string): ProcessLife {
    const life = this.world.lives.find((item) => item.name === name);
    if (life === undefined) throw new Error(`no process ${name}`);
    return life;
  }

  #startJob(index: number, worker: Worker): void {
    const [message] = this.world.queue.splice(index, 1);
    if (message === undefined) return;
    const { life, ports } = worker;
    life.jobs += 1;
    // As startStageService does: whatever goes wrong, the run's wake_at brings it back.
    worker.work(message.stage, message.hint).then(
      () => {
        life.jobs -= 1;
      },
      (error: unknown) => {
        life.jobs -= 1;
        if (!(error instanceof Killed)) ports.log.error({ err: error }, 'the stage failed');
      },
    );
  }

  async #sweep({ life, ports }: Worker): Promise<void> {
    life.sweeping = true;
    life.lastSweepMs = this.world.scheduler.nowMs;
    try {
      await sweepOnce(ports);
    } catch (error) {
      if (!(error instanceof StoreUnavailable) && !(error instanceof Killed))
        ports.log.error({ err: error }, 'the sweep failed');
    } finally {
      life.sweeping = false;
    }
  }

  // ------------------------------------------------------------------------------------------------------------ invariants

  #committed(run: MemoryRun, event: StoredEvent): void {
    const { world } = this;
    world.counts.commits += 1;
    world.note(
      `· ${world.nameOf(run.made.run_id)} revision ${event.revision}: ${event.from ?? 'new'} → ${event.to} (${event.trigger}) by ${event.actor}`,
    );
    this.#guard(() => checkCommit(world.store, world.provider, run, event, world.scheduler.nowMs));
  }

  #guard(check: () => void): void {
    if (this.#violation !== null) return;
    try {
      check();
    } catch (error) {
      if (!(error instanceof InvariantViolation)) throw error;
      if (this.#options.excused?.includes(error.violation.invariant) !== true) this.#violation = error.violation;
    }
  }

  #checkAll(): void {
    const { store, provider, faults } = this.world;
    const [fault] = faults;
    if (fault !== undefined) this.#violation ??= { invariant: 'BUG', detail: fault };
    for (; this.#effectsChecked < provider.effects.length; this.#effectsChecked++) {
      const effect = provider.effects[this.#effectsChecked];
      if (effect !== undefined && effect.run_id !== null) this.#guard(() => checkEffect(store, provider, effect));
    }
    this.#guard(() => checkStates(store, provider));
    this.#guard(() => checkEvidence(store));
  }

  get violation(): Violation | null {
    return this.#violation;
  }

  // ------------------------------------------------------------------------------------------------------------ steps

  /** Lets everything that was resolved run to its next port; then the world stands still again. */
  async drain(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    this.#checkAll();
  }

  /** One step. @returns false when nothing is left that could happen. */
  async step(wild: boolean): Promise<boolean> {
    const { world } = this;
    world.dice = new Dice(this.#options.seed, this.#steps++);
    world.wild = wild;
    world.counts.steps += 1;
    const happened = wild ? this.#wildStep() : this.#calmStep();
    await this.drain();
    return happened;
  }

  /** Runs a task; `mode` other than go is one of its faults. */
  runTask(task: Task, mode = 'go'): void {
    const { scheduler } = this.world;
    const doneMs = scheduler.nowMs + task.tookMs;
    const forced = task.tookMs === 0 ? undefined : scheduler.forcedBefore(doneMs);
    if (forced !== undefined && forced !== task) {
      this.#advance(doneMs);
      return;
    }
    scheduler.nowMs = doneMs;
    scheduler.remove(task);
    this.world.note(mode === 'go' ? task.name : `${task.name} [${mode}]`);
    task.run(mode);
  }

  /** What happens next when nothing goes wrong: everything in the order in which it was asked for. */
  nextCalm(): { name: string; run: () => void } | undefined {
    const { scheduler, queue } = this.world;
    const task = scheduler.tasks.find(
      (item) => scheduler.isReady(item) && !this.held.some((pattern) => pattern.test(item.name)),
    );
    if (task !== undefined) return { name: task.name, run: () => this.runTask(task) };
    for (const [index, message] of queue.entries()) {
      if (this.#beginning && message.stage === 'execute') continue;
      const worker = this.#freeWorkers(message.stage)[0];
      if (worker !== undefined)
        return { name: `${worker.life.name} takes ${message.stage}`, run: () => this.#take(index, worker) };
    }
    const sweeper = this.#freeSweepers()[0];
    if (sweeper !== undefined) return { name: `${sweeper.life.name} sweeps`, run: () => this.#startSweep(sweeper) };
    const deed = this.people.deeds().find((item) => item.calm);
    if (deed !== undefined) return { name: deed.name, run: () => this.#do(deed) };
    const untilMs = this.#nextEventMs();
    return untilMs === NEVER ? undefined : { name: 'time goes on', run: () => this.#advance(untilMs) };
  }

  #calmStep(): boolean {
    const next = this.nextCalm();
    next?.run();
    return next !== undefined;
  }

  #take(index: number, worker: Worker): void {
    const message = this.world.queue[index];
    if (message === undefined) return;
    this.world.note(`${worker.life.name} takes ${message.stage} ${this.world.nameOf(message.hint.run_id)}`);
    this.#startJob(index, worker);
  }

  #startSweep(worker: Worker): void {
    this.world.note(`${worker.life.name} sweeps`);
    void this.#sweep(worker);
  }

  #do(deed: { name: string; run: () => void }): void {
    this.world.note(deed.name);
    deed.run();
  }

  #freeWorkers(stage: Stage): Worker[] {
    const service = SERVICE_OF[stage];
    return this.#workers.filter(
      ({ life }) => life.service === service && life.runs && life.blockedBy === null && life.jobs < CONCURRENCY,
    );
  }

  #freeSweepers(): Worker[] {
    const { store, scheduler } = this.world;
    if (!this.#sweeps || !store.anyDue(this.world.durations.lease_loss_ms)) return [];
    return this.#workers.filter(
      ({ life }) =>
        life.service === 'reconciler' &&
        life.runs &&
        !life.sweeping &&
        scheduler.nowMs >= life.lastSweepMs + this.world.durations.sweep_interval_ms,
    );
  }

  /** When something comes due by itself. */
  #nextEventMs(): number {
    const { scheduler, store } = this.world;
    let next = scheduler.nextDueMs();
    if (!this.#sweeps) return next;
    for (const { life } of this.#workers) {
      if (life.service !== 'reconciler' || !life.runs || life.sweeping) continue;
      const dueMs = Math.max(
        store.nextWakeMs(this.world.durations.lease_loss_ms),
        store.anyDue(this.world.durations.lease_loss_ms) ? scheduler.nowMs : 0,
      );
      next = Math.min(next, Math.max(dueMs, life.lastSweepMs + this.world.durations.sweep_interval_ms));
    }
    return next;
  }

  /** Lets time go on to an instant; what an assumption forces before that happens first, and then this is all that the step does. */
  #advance(untilMs: number): void {
    const { world } = this;
    const { scheduler, store } = world;
    const forced = scheduler.forcedBefore(untilMs);
    scheduler.nowMs = Math.max(scheduler.nowMs, forced?.latestMs ?? untilMs);
    for (const { life } of this.#workers) {
      if (!life.runs || scheduler.nowMs < life.lastBeatMs + BEAT_MS) continue;
      life.lastBeatMs = scheduler.nowMs;
      store.beat(life.instance_id, life.service);
    }
    if (forced === undefined) world.note('time goes on');
    else this.runTask(forced, this.#modeOf(forced));
  }

  /** Lets so much time pass in which only what is forced happens. For scripts. */
  async pass(ms: number): Promise<void> {
    const untilMs = this.world.scheduler.nowMs + ms;
    while (this.world.scheduler.nowMs < untilMs) {
      this.#advance(untilMs);
      await this.drain();
    }
  }

  #modeOf(task: Task): string {
    const { world, shape } = this;
    if (world.databaseAway && task.faults.includes('lost-before'))
      return world.dice.pick(['lost-before', 'lost-after']);
    if (world.queueAway && task.faults.includes('dropped')) return 'dropped';
    if (!world.wild || task.faults.length === 0 || !world.dice.chance(Math.min(0.7, shape.faultRate * task.risk)))
      return 'go';
    const mode = world.dice.pick(task.faults);
    return shape.faults.has(mode) ? mode : 'go';
  }

  // ------------------------------------------------------------------------------------------------------------ chaos

  #wildStep(): boolean {
    const options = this.#wildOptions();
    let total = 0;
    for (const option of options) total += option.weight;
    if (total === 0) return false;
    let drawn = this.world.dice.next() * total;
    for (const option of options) {
      drawn -= option.weight;
      if (drawn >= 0) continue;
      option.run();
      return true;
    }
    return false;
  }

  #wildOptions(): Option[] {
    const { world, shape } = this;
    const { scheduler, queue, dice, store } = world;
    const options: Option[] = [];
    const add = (name: string, weight: number, run: () => void) => options.push({ name, weight, run });
    for (const task of scheduler.tasks)
      if (scheduler.isReady(task)) add(task.name, 10, () => this.runTask(task, this.#modeOf(task)));
    for (const [index, message] of queue.entries()) {
      const free = this.#freeWorkers(message.stage);
      if (free.length > 0) add(message.stage, 6, () => this.#take(index, dice.pick(free)));
    }
    const sweepers = this.#freeSweepers();
    if (sweepers.length > 0) add('sweep', 5, () => this.#startSweep(dice.pick(sweepers)));
    for (const deed of this.people.deeds()) {
      if (deed.name.startsWith('agent proposes') && !shape.faults.has('amend')) continue;
      add(deed.name, deed.weight, () => this.#do(deed));
    }
    add('time', options.length === 0 ? 40 : shape.haste, () => this.#advance(this.#someInstant()));
    for (const { life } of this.#workers) this.#lifeOptions(life, add);
    for (const service of ['preflight', 'executor', 'verifier', 'reconciler'] as const) {
      const living = this.#workers.filter(({ life }) => life.service === service && life.alive).length;
      if (living < this.#wanted[service]) add('start', 6, () => world.note(`${this.start(service).name} starts`));
    }
    if (shape.faults.has('wipe') && queue.length > 0)
      add('wipe', 0.4, () => {
        world.note('the queue is wiped');
        world.counts.queue_wipes += 1;
        queue.length = 0;
      });
    if (shape.faults.has('hold')) {
      const held = store.isHeld('sandbox-payments') || store.isHeld('legacy-credits');
      add('hold', held ? 3 : 0.3, () => {
        world.note(held ? 'dispatch is released' : 'dispatch is held');
        store.setHold('*', held ? null : 'simulated');
      });
    }
    this.#worldOptions(add);
    return options;
  }

  #lifeOptions(life: ProcessLife, add: (name: string, weight: number, run: () => void) => void): void {
    const { world, shape } = this;
    const { store, dice, scheduler } = world;
    if (!life.alive) {
      const instance = store.instances.get(life.instance_id);
      if (life.service === 'executor' && instance?.endedMs === null)
        add('end', 1, () => {
          world.note(`the end of ${life.name} is recorded`);
          store.endInstance(life.instance_id, 'supervisor');
        });
      return;
    }
    const sending = life.service === 'executor' && life.jobs > 0;
    const busy = sending ? (life.blockedBy === null ? 3 : 8) : life.jobs > 0 || life.sweeping ? 1 : 0.1;
    if (shape.faults.has('kill'))
      add('kill', 0.2 * busy, () => {
        world.note(`${life.name} is killed`);
        this.kill(life, () => dice.chance(0.5), dice.chance(0.7) ? 0 : dice.int(20_000));
      });
    if (life.paused)
      add('resume', shape.longStops ? 0.4 : 4, () => {
        world.note(`${life.name} goes on`);
        this.resume(life);
      });
    else if (shape.faults.has('pause'))
      add('pause', 0.35 * busy, () => {
        const asleep = shape.clock === 'sleeps' && dice.chance(0.5);
        world.note(asleep ? `${life.name} falls asleep` : `${life.name} is stopped`);
        this.pause(life, asleep);
      });
    if (shape.faults.has('clock') && shape.clock === 'jumps')
      add('clock', 0.1, () => {
        const jump = dice.pick([-3_600_000, -1_000, 1_000, 3_600_000]);
        world.note(`the wall clock of ${life.name} jumps by ${jump} ms`);
        world.counts.clock_jumps += 1;
        life.wallSkewMs += jump;
      });
    if (life.service !== 'executor' || !shape.faults.has('lease')) return;
    const instance = store.instances.get(life.instance_id);
    if (instance?.leaseHeld === true)
      add('lease', 0.15 * busy, () => {
        world.note(`the session lease of ${life.name} is lost`);
        world.counts.leases_lost += 1;
        store.dropLease(life.instance_id);
      });
    else if (life.runs && instance?.endedMs === null)
      add('lease', 3, () => {
        store.takeLease(life.instance_id);
        world.note(`${life.name} takes its session lease again at ${scheduler.nowMs - START_MS}`);
      });
  }

  #worldOptions(add: (name: string, weight: number, run: () => void) => void): void {
    const { world, shape } = this;
    const { provider, dice, scheduler } = world;
    if (shape.faults.has('source'))
      add('source', 0.15, () => {
        const about = dice.pick(provider.cases);
        about.currentAmount = about.amount_minor - 1 - dice.int(100);
        if (dice.chance(0.2)) about.orderStatus = 'cancelled';
        if (dice.chance(0.1)) about.status = 'closed';
        about.version += 1;
        world.note(`the source of ${about.request_id} changes`);
      });
    if (shape.faults.has('database'))
      add('database', world.databaseAway ? 3 : 0.1, () => {
        world.databaseAway = !world.databaseAway;
        world.note(world.databaseAway ? 'the database goes away' : 'the database is back');
        world.counts.outages += world.databaseAway ? 1 : 0;
      });
    if (shape.faults.has('queue'))
      add('queue', world.queueAway ? 2 : 0.1, () => {
        world.queueAway = !world.queueAway;
        world.note(world.queueAway ? 'the queue goes away' : 'the queue is back');
        world.counts.outages += world.queueAway ? 1 : 0;
      });
    if (shape.faults.has('lookalike') && provider.kind === 'partial')
      add('lookalike', 0.1, () => {
        world.note('somebody makes an equal effect by hand');
        provider.bookLookalike(dice.pick(provider.cases));
      });
    if (!shape.faults.has('undo') || provider.kind !== 'pending') return;
    for (const effect of provider.effects)
      if (effect.finalMs !== null && !effect.undone && scheduler.nowMs < effect.finalMs + REVERSAL_HORIZON_MS)
        add('undo', 0.3, () => {
          world.note(`the provider undoes ${effect.ref}`);
          effect.status = 'failed';
          effect.undone = true;
        });
  }

  /** An instant worth going to: a deadline, an expiry, a wake-up, a millisecond to either side of one, or a while from now. */
  #someInstant(): number {
    const { scheduler, store, dice } = this.world;
    const { nowMs } = scheduler;
    if (dice.chance(0.5)) return nowMs + dice.pick([1, 20, 200, 700, 1_500, 3_000]);
    const instants: number[] = [];
    // Mostly soon: a run whose approval expires each time never gets anywhere.
    const horizonMs = nowMs + (dice.chance(0.9) ? 8_000 : 120_000);
    const near = (ms: number) => {
      if (ms > nowMs && ms < horizonMs) instants.push(ms);
    };
    for (const run of store.runs.values()) {
      if (run.wakeMs !== null) near(run.wakeMs);
      if (run.state === 'awaiting_approval' && run.approvalExpiresMs !== null)
        near(run.approvalExpiresMs - dice.pick([0, this.world.durations.epsilon_ms + 1_000]));
      for (const attempt of run.attemptRows) {
        near(attempt.deadlineMs);
        near(attempt.deadlineMs + this.world.durations.sweep_grace_ms);
        near(
          attempt.deadlineMs +
            this.world.durations.pause_ms +
            this.world.durations.provider_ms +
            this.world.durations.epsilon_ms,
        );
      }
    }
    for (const task of scheduler.tasks) {
      near(task.earliestMs);
      if (task.latestMs !== NEVER) near(task.latestMs);
    }
    if (instants.length === 0) return nowMs + 1_000;
    return Math.max(nowMs + 1, dice.pick(instants) + dice.pick([-1, 0, 0, 1]));
  }

  // ------------------------------------------------------------------------------------------------------------ whole runs

  /** From now on nothing goes wrong: the stopped go on, the dead are replaced, holds are released, ends are recorded. */
  heal(): void {
    const { world } = this;
    world.note('— heal —');
    world.store.setHold('*', null);
    world.databaseAway = false;
    world.queueAway = false;
    for (const { life } of this.#workers) {
      if (life.paused) this.resume(life);
      if (!life.alive) {
        world.store.dropLease(life.instance_id);
        world.store.endInstance(life.instance_id, 'supervisor');
      } else if (life.service === 'executor') world.store.takeLease(life.instance_id);
    }
    for (const service of ['preflight', 'executor', 'verifier', 'reconciler'] as const)
      while (this.#workers.filter(({ life }) => life.service === service && life.alive).length < this.#wanted[service])
        this.start(service);
  }

  /** Goes on in order until every run rests, then checks LIVE. */
  async live(): Promise<void> {
    const { store, scheduler } = this.world;
    const endMs = scheduler.nowMs + LIVE_MS;
    for (let steps = 0; steps < LIVE_STEPS && scheduler.nowMs < endMs; steps++) {
      if (this.#violation !== null) return;
      if (this.#isQuiet()) return;
      if (!(await this.step(false))) break;
    }
    this.#guard(() => checkLive(store, `after ${scheduler.nowMs - endMs + LIVE_MS} ms of peace`));
  }

  /** Whether nothing of interest can come any more: every run is closed for good and nothing is under way. */
  #isOver(): boolean {
    return this.#isQuiet() && this.world.store.nextWakeMs(this.world.durations.lease_loss_ms) === NEVER;
  }

  #isQuiet(): boolean {
    for (const run of this.world.store.runs.values()) if (!rests(run)) return false;
    return this.world.scheduler.tasks.length === 0 && this.world.queue.length === 0;
  }

  /** Follows the closed runs to their last audits, and checks SURFACE. */
  async audit(): Promise<void> {
    const { store, provider } = this.world;
    for (let steps = 0; steps < LIVE_STEPS && this.#violation === null; steps++) {
      if (store.nextWakeMs(this.world.durations.lease_loss_ms) === NEVER && this.#isQuiet()) break;
      if (!(await this.step(false))) break;
    }
    this.#guard(() => checkSurfaced(store, provider));
  }

  async #begin(): Promise<void> {
    const { begin } = this.shape;
    if (begin === 'request') return;
    if (begin === 'dispatched') {
      const sent = () =>
        /← dispatch/.test(this.nextCalm()?.name ?? '') || [...this.world.store.runs.values()].every(rests);
      while (!sent() && (await this.step(false)));
      return;
    }
    const there = (run: MemoryRun) =>
      rests(run) || (run.state === 'awaiting_approval' && (begin === 'approval' || run.decisions_sufficient));
    this.#beginning = true;
    while ([...this.world.store.runs.values()].some((run) => !there(run)) && (await this.step(false)));
    this.#beginning = false;
  }

  /** The whole schedule of this seed: chaos, heal, LIVE, audits. */
  async run(): Promise<SimulationResult> {
    const { wild } = this.#options;
    await this.#begin();
    this.world.note(SEED_DECIDES);
    for (let k = 0; k < this.shape.wildSteps && this.#violation === null; k++) {
      const decides = wild === undefined || wild.has(k);
      if (decides) this.#wildSteps += 1;
      if (!(await this.step(decides)) || this.#isOver()) break;
    }
    if (this.#violation === null) {
      this.heal();
      await this.live();
      if (this.shape.audits && this.#violation === null) await this.audit();
      this.checkHistory(this.shape.audits);
    }
    return this.result();
  }

  /** What the history checker makes of what was recorded. */
  checkHistory(healed: boolean): void {
    if (this.#violation !== null) return;
    const detail = judge(this.world, healed);
    if (detail !== null) this.#violation = { invariant: 'HISTORY', detail };
  }

  result(): SimulationResult {
    const { world } = this;
    return {
      seed: this.#options.seed,
      provider: world.provider.kind,
      violation: this.#violation,
      outcomes: [...world.store.runs.values()].map((run) => ({
        run: world.nameOf(run.made.run_id),
        state: run.state,
        code: run.parked_reason ?? run.stop_reason?.code ?? null,
        attempts: run.attempts,
      })),
      counts: world.counts,
      trace: world.trace,
      traceHash: createHash('sha256').update(world.trace.join('\n')).digest('hex'),
      wildSteps: this.#wildSteps,
      virtualMs: world.scheduler.nowMs - START_MS,
    };
  }
}

function drawShape(dice: Dice, kind: ProviderKind): Shape {
  const runs = dice.pick([1, 1, 1, 2, 2, 3]);
  const rate = dice.pick([0.05, 0.15, 0.35]);
  const share = dice.pick([0.3, 0.6, 1]);
  const twoPeople = dice.chance(0.2);
  return {
    runs,
    sharedResource: runs > 1 && dice.chance(0.5),
    amountMinor: kind === 'eventual' ? (twoPeople ? 20_000 : 900) : twoPeople ? 60_000 : 4_200,
    approvalLifeMs: dice.chance(0.12) ? 8_000 : null,
    executors: dice.pick([2, 2, 3]),
    begin: dice.pick(['request', 'approval', 'approved', 'approved', 'dispatched', 'dispatched']),
    longStops: dice.chance(0.4),
    haste: dice.pick([0.3, 1, 3]),
    wildSteps: 120 + dice.int(260),
    faultRate: rate,
    faults: new Set(FAULTS.filter(() => dice.chance(share))),
    clock: dice.pick(['right', 'sleeps', 'jumps']),
    pace: dice.pick(['quick', 'quick', 'tardy']),
    audits: dice.chance(0.15),
  };
}

function judgesOf(service: WorkerService, ports: Ports, world: World): Partial<Record<Stage, Judge>> {
  const { systems, durations, limits, failpoint, store, clock, log, metrics, open } = ports;
  const { ids } = world;
  switch (service) {
    case 'preflight':
      return preflightStages({ systems, ids, durations, limits });
    case 'executor':
      return executorStages(systems, {
        store,
        open,
        clock,
        ids,
        failpoint,
        durations,
        log,
        metrics,
        trust: { signatures: undefined, development: true },
      });
    case 'verifier':
      return verifierStages(systems, { durations, limits, failpoint, metrics });
    case 'reconciler':
      return reconcilerStages(systems, { store, durations, limits, failpoint, metrics });
  }
}
