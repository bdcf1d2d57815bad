import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const RULES = 'deploy/prometheus';
/** A minute of the rules becomes a second. */
const SECONDS = { s: 1, m: 60, h: 3_600 } as const;
const FACTOR = 60;
/** A rate needs some samples, and one comes each second. */
const WINDOW_MIN_S = 5;
/** A census is cached for 5 s, so that it cannot be younger than that; 30 s would make a test wait for nothing. */
const STALE_S = 10;

/**
 * Writes the repository's own rules into `folder` so that a test need not wait for minutes: `for`, windows and offsets are divided by 60, and a
 * census or a reading of the queues is old after 10 s instead of 30. Nothing else changes: names, expressions, labels and annotations are those that are deployed.
 * @returns the files.
 */
export function writeFastRules(folder: string): string[] {
  mkdirSync(folder, { recursive: true });
  return readdirSync(RULES)
    .filter((name) => name.endsWith('.yml'))
    .map((name) => {
      const file = path.join(folder, name);
      writeFileSync(file, fastRules(readFileSync(path.join(RULES, name), 'utf8')));
      return file;
    });
}

export function fastRules(text: string): string {
  return text
    .replaceAll(/for: (\d+)([smh])/g, (_, n: string, unit: string) => `for: ${scaled(n, unit, 1)}s`)
    .replaceAll(/\[(\d+)([smh])\]/g, (_, n: string, unit: string) => `[${scaled(n, unit, WINDOW_MIN_S)}s]`)
    .replaceAll(/offset (\d+)([smh])/g, (_, n: string, unit: string) => `offset ${scaled(n, unit, WINDOW_MIN_S)}s`)
    .replaceAll(
      /((?:census|queue_reading)_(?:age_seconds|believed)\)?) ([<>]) 30\b/g,
      (_, metric: string, comparison: string) => `${metric} ${comparison} ${STALE_S}`,
    );
}

function scaled(n: string, unit: string, min: number): number {
  return Math.max(min, Math.round((Number(n) * SECONDS[unit as keyof typeof SECONDS]) / FACTOR));
}
