import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { type Environment, parseServiceConfig } from './config.ts';
import { withSecretFiles } from './secret-files.ts';

const folder = mkdtempSync(join(tmpdir(), 'cs-secret-files-'));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function file(content: string | Uint8Array): string {
  const path = join(folder, `secret-${files++}`);
  writeFileSync(path, content);
  return path;
}

const DATABASE = 'postgres://cs_executor:hunter22@db.test/cs';
const OWN = z.object({ COUNTERSTAMP_PAYMENTS_WRITE_KEY: z.string().min(1) });
const COUNTERSTAMP_DATA_KEY = Buffer.alloc(32, 1).toString('base64url');
const faultsOf = (env: Environment) => {
  const result = parseServiceConfig('executor', { COUNTERSTAMP_DATA_KEY, ...env }, OWN, { http_port: 9465 });
  return result.ok ? [] : result.faults;
};

describe('a secret given as a file', () => {
  test.each([
    'DATABASE_URL',
    'REDIS_URL',
    'COUNTERSTAMP_SECRET',
    'COUNTERSTAMP_KEY',
    'COUNTERSTAMP_DATA_KEY',
    'COUNTERSTAMP_EXECUTOR_DATABASE_URL',
    'COUNTERSTAMP_PAYMENTS_WRITE_KEY',
  ])('%s_FILE takes the place of the variable, without the newline at its end', (name) => {
    for (const end of ['', '\n', '\r\n']) {
      const { env, faults } = withSecretFiles({ [`${name}_FILE`]: file(`s€cret${end}`), LOG_LEVEL: 'info' });
      expect(faults).toEqual([]);
      expect(env).toEqual({ [name]: 's€cret', LOG_LEVEL: 'info' });
    }
  });

  test('configures a service like the variable itself', () => {
    const result = parseServiceConfig(
      'executor',
      {
        COUNTERSTAMP_EXECUTOR_DATABASE_URL_FILE: file(`${DATABASE}\n`),
        REDIS_URL_FILE: file('redis://:pw@redis.test:6379\n'),
        COUNTERSTAMP_PAYMENTS_WRITE_KEY_FILE: file('sk_1\n'),
        COUNTERSTAMP_DATA_KEY_FILE: file(`${COUNTERSTAMP_DATA_KEY}\n`),
      },
      OWN,
      { http_port: 9465 },
    );
    expect(result).toMatchObject({
      ok: true,
      config: {
        database_url: DATABASE,
        queue: { backend: 'redis', url: 'redis://:pw@redis.test:6379' },
        own: { COUNTERSTAMP_PAYMENTS_WRITE_KEY: 'sk_1' },
      },
    });
  });

  test('is not read for a variable that is no secret, nor for an empty name', () => {
    const env = { COUNTERSTAMP_PROFILE_FILE: '/nowhere', LOG_FILE: '/nowhere', _FILE: '/nowhere', REDIS_URL_FILE: '' };
    expect(withSecretFiles(env)).toEqual({ env, faults: [], unread: new Set() });
  });
});

describe('a secret file with a fault', () => {
  const ok = { COUNTERSTAMP_EXECUTOR_DATABASE_URL: DATABASE, COUNTERSTAMP_PAYMENTS_WRITE_KEY: 'sk_1' };
  test.each<[string, () => string, RegExp]>([
    ['does not exist', () => join(folder, 'none'), /cannot be read by user \d+ \(ENOENT\)/],
    ['is a folder', () => folder, /is not a file/],
    ['is a device', () => '/dev/zero', /is not a file/],
    ['is empty', () => file('\n'), /is empty/],
    ['is far too long', () => file('hunter22'.repeat(3_000)), /longer than 16384 bytes/],
    ['has two lines', () => file('hunter22\nhunter22'), /must hold one line/],
    ['is binary', () => file(new Uint8Array([104, 0, 7])), /must hold one line/],
  ])('is named with its variable, alone and without its content, when it %s', (_, path, expected) => {
    const faults = faultsOf({
      ...ok,
      COUNTERSTAMP_PAYMENTS_WRITE_KEY: '',
      COUNTERSTAMP_PAYMENTS_WRITE_KEY_FILE: path(),
    });
    expect(faults).toHaveLength(1);
    expect(faults[0]).toMatch(/^COUNTERSTAMP_PAYMENTS_WRITE_KEY_FILE: /);
    expect(faults[0]).toMatch(expected);
    expect(faults[0]).not.toContain('hunter22');
  });

  test('is named alone for the database login too', () => {
    const env = { ...ok, COUNTERSTAMP_EXECUTOR_DATABASE_URL: undefined };
    expect(faultsOf({ ...env, COUNTERSTAMP_EXECUTOR_DATABASE_URL_FILE: join(folder, 'none') })).toEqual([
      expect.stringMatching(/^COUNTERSTAMP_EXECUTOR_DATABASE_URL_FILE: /),
    ]);
  });

  test('is refused beside the variable itself: which one holds would be a guess', () => {
    expect(faultsOf({ ...ok, REDIS_URL: 'redis://a', REDIS_URL_FILE: file('redis://b') })).toEqual([
      'REDIS_URL_FILE: REDIS_URL is set too; keep one of them',
    ]);
  });

  test('whose content is judged like the variable’s', () => {
    expect(faultsOf({ ...ok, REDIS_URL_FILE: file('http://:hunter22@x') })).toEqual([
      expect.stringMatching(/^REDIS_URL: must be a URL(?!.*hunter22)/),
    ]);
  });
});
