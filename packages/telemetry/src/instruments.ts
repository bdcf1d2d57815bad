import type { Service } from '@counterstamp/manifest-core';
import { Counter, Gauge, Histogram, type MetricValueWithName, type Registry } from 'prom-client';
import { CLOSED_BY_CODE, METRICS, type MetricEntry, type MetricName } from './catalogue.ts';

type Labels = Readonly<Record<string, string>>;

/** What a histogram of a moment holds for one set of labels. */
export interface Snapshot {
  labels: Labels;
  /** Not cumulative, one per bound. */
  buckets: readonly number[];
  sum: number;
  count: number;
}

/** The metrics of one process, made from the catalogue. What the catalogue does not let this service export is not registered and costs nothing. */
export interface Instruments {
  add(name: MetricName, labels: Labels, by?: number): void;
  set(name: MetricName, labels: Labels, value: number): void;
  observe(name: MetricName, labels: Labels, value: number): void;
  /** A gauge or counter whose values are asked for at each scrape. */
  collected(name: MetricName, collect: (set: (labels: Labels, value: number) => void) => Promise<void> | void): void;
  /** A histogram that shows one moment, asked for at each scrape. */
  snapshot(name: MetricName, collect: () => Promise<Snapshot[]>): void;
}

/** Label sets of a counter that are exported as 0 from the start, so that its first event is an increase: only where they are few. */
const ZEROES_MAX = 64;

export function createInstruments(service: Service, registry: Registry): Instruments {
  const counters = new Map<string, Counter>();
  const gauges = new Map<string, Gauge>();
  const histograms = new Map<string, Histogram>();
  const entries = Object.entries(METRICS) as [MetricName, MetricEntry][];
  const mine = new Set<MetricName>(entries.filter(([, entry]) => entry.by.includes(service)).map(([name]) => name));
  const settings = (name: MetricName) => ({
    name,
    help: METRICS[name].help,
    labelNames: Object.keys(METRICS[name].labels),
    registers: [registry],
  });

  for (const [name, entry] of entries) {
    if (!mine.has(name)) continue;
    if (entry.type === 'counter') {
      const made = new Counter(settings(name));
      for (const labels of zeroes(entry)) made.inc(labels, 0);
      counters.set(name, made);
    } else if (entry.type === 'histogram' && entry.whole_fleet !== true) {
      histograms.set(name, new Histogram({ ...settings(name), buckets: [...(entry.buckets ?? [])] }));
    }
  }

  return {
    add: (name, labels, by = 1) => counters.get(name)?.inc(bounded(name, labels), by),
    observe: (name, labels, value) => histograms.get(name)?.observe(bounded(name, labels), Math.max(0, value)),
    set(name, labels, value) {
      if (!mine.has(name)) return;
      const made = gauges.get(name) ?? new Gauge(settings(name));
      gauges.set(name, made);
      made.set(bounded(name, labels), value);
    },
    collected(name, collect) {
      if (!mine.has(name)) return;
      registry.removeSingleMetric(name);
      const { type } = METRICS[name];
      const collecting = {
        async collect(this: Counter | Gauge) {
          this.reset();
          await collect((labels, value) => {
            if (this instanceof Gauge) this.set(bounded(name, labels), value);
            else this.inc(bounded(name, labels), value);
          });
        },
      };
      if (type === 'counter') new Counter({ ...settings(name), ...collecting });
      else new Gauge({ ...settings(name), ...collecting });
    },
    snapshot(name, collect) {
      if (mine.has(name)) new SnapshotHistogram(name, collect, registry);
    },
  };
}

/** Labels as the catalogue permits them: what it does not know becomes `other`, so that no value from outside makes a series (case O24). */
function bounded(name: MetricName, labels: Labels): Record<string, string> {
  const allowed: Readonly<Record<string, readonly string[]>> = METRICS[name].labels;
  return Object.fromEntries(
    Object.entries(labels).map(([label, value]) => [
      label,
      (CLOSED_BY_CODE as readonly string[]).includes(label) || allowed[label]?.includes(value) === true
        ? value
        : 'other',
    ]),
  );
}

/** Every set of labels of an entry, when they are few and all known. */
function zeroes({ labels }: MetricEntry): Record<string, string>[] {
  let sets: Record<string, string>[] = [{}];
  for (const [label, values] of Object.entries(labels)) {
    sets = sets.flatMap((set) => values.map((value) => ({ ...set, [label]: value })));
    if (sets.length > ZEROES_MAX) return [];
  }
  return sets;
}

/** prom-client's histograms only grow; this one shows what is there now, in the same format. */
class SnapshotHistogram extends Histogram {
  readonly #bounds: readonly number[];
  readonly #metric: MetricName;
  readonly #collect: () => Promise<Snapshot[]>;

  constructor(name: MetricName, collect: () => Promise<Snapshot[]>, registry: Registry) {
    const { help, labels, buckets = [] }: MetricEntry = METRICS[name];
    super({ name, help, labelNames: Object.keys(labels), buckets: [...buckets], registers: [registry] });
    this.#metric = name;
    this.#bounds = buckets;
    this.#collect = collect;
  }

  /** What prom-client 15 asks for its text, and its own `get` builds upon. Its declarations leave it out. */
  async getForPromString() {
    const values: MetricValueWithName<string>[] = [];
    for (const { labels, buckets, sum, count } of await this.#collect()) {
      const line = (suffix: string, value: number, more: Record<string, string | number> = {}) =>
        values.push({ metricName: `${this.#metric}_${suffix}`, labels: { ...labels, ...more }, value });
      let below = 0;
      for (const [index, bound] of this.#bounds.entries()) {
        below += buckets[index] ?? 0;
        line('bucket', below, { le: bound });
      }
      line('bucket', count, { le: '+Inf' });
      line('sum', sum);
      line('count', count);
    }
    return {
      name: this.#metric,
      help: METRICS[this.#metric].help,
      type: 'histogram',
      aggregator: 'max',
      values,
    };
  }
}
