import type { MemoryRun } from './memory-run.ts';
import type { ProcessLife } from './process-life.ts';
import type { Task } from './scheduler.ts';
import { type Shape, Simulation, type SimulationOptions, type SimulationResult } from './simulation.ts';

const STEPS_MAX = 3_000;

/** A schedule written by hand: everything goes in order but for what the script does. */
export class Script {
  readonly simulation: Simulation;

  constructor(options: Omit<SimulationOptions, 'seed' | 'wild'>) {
    const shape: Partial<Shape> = {
      runs: 1,
      sharedResource: false,
      approvalLifeMs: null,
      executors: 2,
      ...options.shape,
    };
    const amount = options.provider === 'eventual' ? 900 : 4_200;
    this.simulation = new Simulation({
      seed: 1,
      wild: new Set(),
      ...options,
      shape: { amountMinor: amount, ...shape },
    });
  }

  get world() {
    return this.simulation.world;
  }

  run(n = 1): MemoryRun {
    const run = [...this.world.store.runs.values()][n - 1];
    if (run === undefined) throw new Error(`there is no run ${n}`);
    return run;
  }

  life(name: string): ProcessLife {
    return this.simulation.life(name);
  }

  /** Goes on in order until `there` holds. */
  async until(there: () => boolean, what = 'the condition'): Promise<void> {
    for (let steps = 0; !there(); steps++) {
      const moved = this.simulation.violation === null && steps < STEPS_MAX && (await this.simulation.step(false));
      if (this.simulation.violation !== null) return;
      if (!moved) throw new Error(`${what} never came:\n${this.world.trace.slice(-40).join('\n')}`);
    }
  }

  /** Goes on in order until this is what would happen next, and leaves it there. */
  async upTo(name: RegExp): Promise<void> {
    await this.until(() => name.test(this.simulation.nextCalm()?.name ?? ''), String(name));
  }

  /** Lets one thing happen that is under way, out of order or wrongly. */
  async happens(name: RegExp, mode = 'go'): Promise<void> {
    this.simulation.runTask(this.task(name), mode);
    await this.simulation.drain();
  }

  task(name: RegExp): Task {
    const task = this.world.scheduler.tasks.find((item) => name.test(item.name));
    if (task === undefined)
      throw new Error(
        `nothing under way is ${name}:\n${this.world.scheduler.tasks.map((item) => item.name).join('\n')}`,
      );
    return task;
  }

  /** It never happens. */
  drop(name: RegExp): void {
    this.world.scheduler.remove(this.task(name));
  }

  hold(...names: RegExp[]): void {
    this.simulation.held = names;
  }

  release(): void {
    this.simulation.held = [];
  }

  async pass(ms: number): Promise<void> {
    await this.simulation.pass(ms);
  }

  pause(...names: string[]): void {
    for (const name of names) this.simulation.pause(this.life(name));
  }

  resume(...names: string[]): void {
    for (const name of names) this.simulation.resume(this.life(name));
  }

  kill(name: string, orphans = true): void {
    this.simulation.kill(this.life(name), () => orphans);
  }

  /** An operator looks, reads and decides, one after the other. `mode` as in people.ts; `waived`: a second person stands in for the fence. */
  async operatorDecides(mode = 'go'): Promise<void> {
    this.simulation.people.look(this.run());
    await this.happens(/^olga reads/);
    await this.happens(/^olga decides/, mode);
  }

  /** Heals, and lets every run come to rest. `judged`: by the history checker too. */
  async rest({ audits = false, judged = true } = {}): Promise<SimulationResult> {
    this.release();
    if (this.simulation.violation === null) {
      this.simulation.heal();
      await this.simulation.live();
      if (audits && this.simulation.violation === null) await this.simulation.audit();
      if (judged) this.simulation.checkHistory(audits);
    }
    return this.simulation.result();
  }
}
