import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { runCommand } from '../../testing/run-command.ts';
import { EXIT } from '../failure.ts';
import type { Check } from './check-page.ts';

const repository = fileURLToPath(new URL('../../../../', import.meta.url));
const vectors = path.join(repository, 'docs/reference/receipt-vectors');
const Index = z.object({
  origin: z.string(),
  keys: z.string(),
  vectors: z.array(
    z.object({ file: z.string(), about: z.string(), fails: z.array(z.string()), absent: z.array(z.string()) }),
  ),
});
const index = Index.parse(JSON.parse(await readFile(path.join(vectors, 'index.json'), 'utf8')));
const keys = path.join(vectors, index.keys);

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'cs-verify-'));
});
afterEach(() => rm(folder, { recursive: true }));

describe('every published vector', () => {
  test.each(index.vectors)('$file: $about', async ({ file, fails, absent }) => {
    const receipt = path.join(vectors, file);
    const { printed, exit } = await runCommand(
      'verify-receipt',
      receipt,
      '--keys',
      keys,
      '--origin',
      index.origin,
      '--json',
    );
    const { checks, ok } = JSON.parse(printed) as { checks: Check[]; ok: boolean };
    const named = (standing: Check['ok']) => checks.filter((one) => one.ok === standing).map(({ check }) => check);
    expect([ok, exit]).toEqual(fails.length === 0 ? [true, EXIT.ok] : [false, EXIT.refused]);
    expect(named(false)).toEqual(fails);
    // Where the statement cannot be read, there is nothing to be absent.
    expect(named('absent')).toEqual(absent);
  });
});

describe('the report', () => {
  test('has one line per check, and says at the end what it comes to', async () => {
    const trust = ['--keys', keys, '--origin', index.origin];
    const whole = await runCommand('verify-receipt', path.join(vectors, 'stopped-early.json'), ...trust);
    const lines = whole.printed.trimEnd().split('\n');
    expect(lines).toHaveLength(16);
    expect(lines[0]).toMatch(/^✓ envelope_signature {4}The receipt is signed by the trusted key \S+\.$/);
    expect(lines[14]).toMatch(/^– checkpoint {12}No checkpoint covers this run/);
    expect(lines[15]).toBe('The receipt holds.');
    const broken = await runCommand('verify-receipt', path.join(vectors, 'evidence-changed.json'), ...trust);
    expect(broken.printed).toContain('\n✗ evidence ');
    expect(broken.printed).toContain('The receipt does not hold: 1 of 15 checks failed.');
  });

  test('tells the right keys and origin from others', async () => {
    const other = ['--keys', keys, '--origin', 'https://elsewhere.example'];
    const { printed, exit } = await runCommand('verify-receipt', path.join(vectors, 'completed.json'), ...other);
    expect(exit).toBe(EXIT.refused);
    expect(printed).toContain('✗ decision_signatures');
  });
});

describe('wrong usage', () => {
  const completed = path.join(vectors, 'completed.json');
  test.each([
    [[completed], 'No keys are given'],
    [[completed, '--keys', keys], 'No origin is given'],
    [[completed, '--keys', keys, '--origin', `${index.origin}/`], 'is no origin'],
    [[completed, '--keys', completed, '--origin', index.origin], 'holds no trusted keys'],
    [[completed, '--keys', 'nowhere.json', '--origin', index.origin], 'nowhere.json cannot be read'],
    [['nowhere.json', '--keys', keys, '--origin', index.origin], 'nowhere.json cannot be read'],
    [[completed, '--fleet', 'nowhere', '--keys', keys], 'No fleet runs on nowhere'],
  ])('%j is told apart from a receipt that fails', async (args, sentence) => {
    const error: unknown = await runCommand('verify-receipt', ...args).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ name: 'CliFailure', exit: EXIT.usage });
    expect(String(error)).toContain(sentence);
  });

  test.each([
    ['text', 'it says yes'],
    ['JSON that reads in two ways', '{"payload": "a", "payload": "b"}'],
  ])('so is a file of %s', async (_, text) => {
    const file = path.join(folder, 'receipt.json');
    await writeFile(file, text);
    const trust = ['--keys', keys, '--origin', index.origin];
    const error: unknown = await runCommand('verify-receipt', file, ...trust).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ name: 'CliFailure', exit: EXIT.usage });
  });
});

/** Ends a process that loads what talks to a database, a queue or the network. */
const GUARD = `
import { register } from 'node:module';
register('data:text/javascript,' + encodeURIComponent(\`
export async function resolve(specifier, context, next) {
  const found = await next(specifier, context);
  if (/(^node:(net|tls|http|https|dns)$|packages\\\\/(manifest-store|stage-queue)\\\\/|node_modules\\\\/(postgres|pg|ioredis|bullmq)\\\\/)/.test(found.url)) {
    process.stderr.write('loaded ' + found.url + '\\\\n');
    process.exit(99);
  }
  return found;
}\`));`;

test('a process with the two files and nothing else verifies it, and never loads a driver', async () => {
  for (const file of ['completed.json', index.keys]) await copyFile(path.join(vectors, file), path.join(folder, file));
  await writeFile(path.join(folder, 'guard.mjs'), GUARD);
  const main = path.join(repository, 'apps/cli/src/main.ts');
  const tsx = pathToFileURL(path.join(repository, 'node_modules/tsx/dist/loader.mjs')).href;
  const command = ['verify-receipt', 'completed.json', '--keys', index.keys, '--origin', index.origin];
  const child = spawn(
    process.execPath,
    ['--conditions', 'source', '--import', tsx, '--import', './guard.mjs', main, ...command],
    { cwd: folder, env: { PATH: process.env.PATH }, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let told = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (bytes: Buffer) => {
      told += bytes.toString();
    });
  const [code] = (await once(child, 'close')) as [number | null];
  expect(told).toContain('The receipt holds.');
  expect(code).toBe(EXIT.ok);
});
