import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { freePort } from '@counterstamp/embedded-postgres';
import { poll } from './fleet.ts';

/** Milliseconds: for its start on a machine that does much else, for one answer, and for its end. */
const READY_MS = 30_000;
const ANSWER_MS = 10_000;
const STOP_MS = 5_000;

export interface Sample {
  metric: Readonly<Record<string, string>>;
  value: number;
}

export interface Range {
  metric: Readonly<Record<string, string>>;
  /** Unix seconds and value. */
  values: readonly (readonly [number, number])[];
}

export interface FiringAlert {
  name: string;
  labels: Readonly<Record<string, string>>;
  annotations: Readonly<Record<string, string>>;
}

/** A real Prometheus of a test's own, that scrapes and evaluates every second. */
export interface PrometheusServer {
  readonly url: string;
  /** Ports on this machine that are the job `counterstamp` from now on. */
  scrape(ports: readonly number[]): void;
  query(expr: string): Promise<Sample[]>;
  range(expr: string, startS: number, endS: number, stepS: number): Promise<Range[]>;
  /** Alerts that fire now. */
  alerts(): Promise<FiringAlert[]>;
  /** Waits until an alert of this name fires, or until none does. */
  untilAlert(name: string, fires: boolean, boundMs: number): Promise<FiringAlert[]>;
  stop(): Promise<void>;
}

/** @throws {Error} with its output when it is not ready within 30 s. */
export async function startPrometheus(folder: string, rules: readonly string[]): Promise<PrometheusServer> {
  const targets = path.join(folder, 'targets.json');
  const config = path.join(folder, 'prometheus.json');
  const scrape = (ports: readonly number[]) => {
    // Prometheus watches the file: it must never read half of it.
    writeFileSync(`${targets}.new`, JSON.stringify([{ targets: ports.map((port) => `127.0.0.1:${port}`) }]));
    renameSync(`${targets}.new`, targets);
  };
  scrape([]);
  writeFileSync(
    config,
    JSON.stringify({
      global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
      rule_files: rules,
      scrape_configs: [
        {
          job_name: 'counterstamp',
          scrape_timeout: '1s',
          file_sd_configs: [{ files: [targets], refresh_interval: '1s' }],
        },
      ],
    }),
  );
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const child = spawn(
    'prometheus',
    [
      `--config.file=${config}`,
      `--storage.tsdb.path=${path.join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
    ],
    { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data: Buffer) => {
      said = (said + data.toString()).slice(-4_000);
    });
  const ended = once(child, 'exit');
  const isOver = () => child.exitCode !== null || child.signalCode !== null;
  const stop = async () => {
    if (isOver()) return;
    child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await ended;
    clearTimeout(late);
  };

  async function ask<T>(address: string, parameters: Record<string, string> = {}): Promise<T> {
    const query = new URLSearchParams(parameters).toString();
    const response = await fetch(`${url}/api/v1/${address}?${query}`, { signal: AbortSignal.timeout(ANSWER_MS) });
    const body = (await response.json()) as { status: string; data: T; error?: string };
    if (body.status !== 'success') throw new Error(`${address} ${query}: ${body.error}`);
    return body.data;
  }
  const alerts: PrometheusServer['alerts'] = async () =>
    (
      await ask<{ alerts: { state: string; labels: Record<string, string>; annotations: Record<string, string> }[] }>(
        'alerts',
      )
    ).alerts
      .filter(({ state }) => state === 'firing')
      .map(({ labels, annotations }) => ({ name: labels.alertname ?? '', labels, annotations }));

  try {
    await poll(async () => isOver() || (await fetch(`${url}/-/ready`)).ok, READY_MS, 'Prometheus was not ready');
    if (isOver()) throw new Error('it ended');
  } catch (error) {
    await stop();
    throw new Error(`Prometheus did not start:\n${said}`, { cause: error });
  }
  return {
    url,
    scrape,
    async query(expr) {
      const { result } = await ask<{ result: { metric: Record<string, string>; value: [number, string] }[] }>('query', {
        query: expr,
      });
      return result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
    },
    async range(expr, startS, endS, stepS) {
      const { result } = await ask<{ result: { metric: Record<string, string>; values: [number, string][] }[] }>(
        'query_range',
        { query: expr, start: String(startS), end: String(endS), step: String(stepS) },
      );
      return result.map(({ metric, values }) => ({ metric, values: values.map(([at, value]) => [at, Number(value)]) }));
    },
    alerts,
    async untilAlert(name, fires, boundMs) {
      let found: FiringAlert[] = [];
      await poll(
        async () => {
          found = (await alerts()).filter((alert) => alert.name === name);
          return found.length > 0 === fires;
        },
        boundMs,
        `${name} ${fires ? 'did not fire' : 'still fires'}`,
      );
      return found;
    },
    stop,
  };
}
