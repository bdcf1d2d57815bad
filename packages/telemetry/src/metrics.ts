import type { Service, Stage, State } from '@counterstamp/manifest-core';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';

export interface CensusLine {
  state: State;
  count: number;
  oldest_age_ms: number;
  parked: number;
}

/** Every metric of the product. Labels come from closed sets only: no id, no tenant, no text from outside ever becomes one. */
export interface Metrics {
  transition(move: { from: State; to: State; trigger: string }): void;
  swapLost(stage: Stage): void;
  /** Due runs that a sweep left to the next one, because their rows were locked. */
  sweepSkipped(runs: number): void;
  hint(stage: Stage, result: 'queued' | 'unavailable'): void;
  stageDone(stage: Stage, seconds: number): void;
  send(outcome: string): void;
  /** Something that only tampering or a broken glass explains; `code` from a closed set. */
  alarm(code: string): void;
  httpRequest(request: { method: string; route: string; status: number; seconds: number }): void;
  /** Read at every scrape, at most once per five seconds. */
  onCensus(read: () => Promise<CensusLine[]>, monotonicMs: () => number): void;
  /** Prometheus text format. */
  text(): Promise<string>;
  readonly contentType: string;
}

const CENSUS_CACHE_MS = 5_000;
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

export function createMetrics(service: Service): Metrics {
  const registry = new Registry();
  registry.setDefaultLabels({ service });
  const registers = [registry];
  const transitions = new Counter({
    name: 'counterstamp_transitions_total',
    help: 'Committed moves of runs by this process.',
    labelNames: ['from', 'to', 'trigger'],
    registers,
  });
  const swapsLost = new Counter({
    name: 'counterstamp_swaps_lost_total',
    help: 'Compare-and-swaps that another worker won first.',
    labelNames: ['stage'],
    registers,
  });
  const sweepsSkipped = new Counter({
    name: 'counterstamp_sweep_skipped_total',
    help: 'Due runs that a sweep left to the next one, because somebody held their rows.',
    registers,
  });
  const hints = new Counter({
    name: 'counterstamp_hints_total',
    help: 'Hints handed to the queue, by whether it took them.',
    labelNames: ['stage', 'result'],
    registers,
  });
  const stageDuration = new Histogram({
    name: 'counterstamp_stage_duration_seconds',
    help: 'From taking a hint to the end of its work.',
    labelNames: ['stage'],
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
    registers,
  });
  const sends = new Counter({
    name: 'counterstamp_sends_total',
    help: 'Requests for an effect that left this process or were meant to, by outcome class.',
    labelNames: ['outcome'],
    registers,
  });
  const alarms = new Counter({
    name: 'counterstamp_alarms_total',
    help: 'Signs of tampering with what was approved, and broken glasses, by code. Each has an audit event.',
    labelNames: ['code'],
    registers,
  });
  const httpDuration = new Histogram({
    name: 'counterstamp_http_request_duration_seconds',
    help: 'HTTP requests by route pattern; unknown paths share one value.',
    labelNames: ['method', 'route', 'status'],
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers,
  });
  new Gauge({
    name: 'process_resident_memory_bytes',
    help: 'Resident memory of this process.',
    registers,
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });

  return {
    transition: (move) => transitions.inc(move),
    swapLost: (stage) => swapsLost.inc({ stage }),
    sweepSkipped: (runs) => sweepsSkipped.inc(runs),
    hint: (stage, result) => hints.inc({ stage, result }),
    stageDone: (stage, seconds) => stageDuration.observe({ stage }, seconds),
    send: (outcome) => sends.inc({ outcome }),
    alarm: (code) => alarms.inc({ code }),
    httpRequest: ({ method, route, status, seconds }) =>
      httpDuration.observe(
        { method: METHODS.has(method) ? method : 'other', route, status: `${Math.floor(status / 100)}xx` },
        seconds,
      ),
    onCensus: (read, monotonicMs) => registerCensus(registers, read, monotonicMs),
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

function registerCensus(registers: Registry[], read: () => Promise<CensusLine[]>, monotonicMs: () => number): void {
  let readAt = Number.NEGATIVE_INFINITY;
  let lines: Promise<CensusLine[]> = Promise.resolve([]);
  const recent = () => {
    if (monotonicMs() - readAt >= CENSUS_CACHE_MS) {
      readAt = monotonicMs();
      lines = read();
    }
    return lines;
  };
  const gauge = (name: string, help: string, value: (line: CensusLine) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ['state'],
      registers,
      async collect() {
        // A database that does not answer leaves the gauge empty rather than stale.
        const current = await recent().catch(() => []);
        this.reset();
        for (const line of current) this.set({ state: line.state }, value(line));
      },
    });
  gauge('counterstamp_runs', 'Open runs by state.', (line) => line.count);
  gauge('counterstamp_runs_parked', 'Open runs that wait for a person, by state.', (line) => line.parked);
  gauge(
    'counterstamp_oldest_run_age_seconds',
    'How long the longest-waiting run has been in its state.',
    (line) => line.oldest_age_ms / 1_000,
  );
}
