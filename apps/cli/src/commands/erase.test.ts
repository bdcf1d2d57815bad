import { randomBytes } from 'node:crypto';
import { createSealing, parseDataKeys } from '@counterstamp/manifest-store';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { type StoreFixture, storeFixture } from '../../../../testing/store-fixture.ts';
import { createProgram } from '../program.ts';
import { eraseText } from './erase.ts';

const outcome = { runs: 2, sealed_values: 7, open_runs: 0, unsealed: 0, erased_at: null };

test.each([
  [{ ...outcome, result: 'erased' }, 'c is erased: 7 values of 2 runs.', 0],
  [{ ...outcome, result: 'erased', open_runs: 1 }, 'c is erased: 7 values of 2 runs. Not ended yet: 1 run.', 0],
  [{ ...outcome, result: 'would_erase' }, 'Would erase 7 values of 2 runs.', 0],
  [{ ...outcome, result: 'already_erased', erased_at: 'T' }, 'c was erased at T: 7 values of 2 runs.', 0],
  [
    { ...outcome, result: 'open_runs', open_runs: 2 },
    'Nothing was erased: 2 runs of c have not ended. Wait, cancel, or use --even-open.',
    1,
  ],
  [{ ...outcome, result: 'unknown' }, 'Nothing of c is sealed in this tenant.', 1],
  [
    { ...outcome, result: 'erased', unsealed: 1 },
    'c is erased: 7 values of 2 runs. In plain text, and so not erased: 1 run from before sealing was on.',
    1,
  ],
] as const)('%j is said as: %s', (of, sentence, exit) => {
  expect(eraseText('c', of)).toEqual({ sentence, exit });
});

describe('on a database', () => {
  let db: StoreFixture;
  let printed = '';
  beforeAll(async () => {
    const parsed = parseDataKeys(randomBytes(32).toString('base64url'));
    if (!parsed.ok) throw new Error(parsed.fault);
    db = await storeFixture(18, { sealing: createSealing(parsed.keys) });
    vi.stubEnv('DATABASE_URL', db.url);
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
      printed += String(text);
      return true;
    });
  });
  afterEach(() => {
    process.exitCode = undefined;
    printed = '';
  });
  afterAll(async () => {
    vi.unstubAllEnvs();
    vi.restoreAllMocks();
    await db.close();
  });
  const counterstamp = async (...args: string[]) => {
    printed = '';
    await createProgram().parseAsync(args, { from: 'user' });
    return { printed, exit: process.exitCode };
  };
  const erase = (...more: string[]) =>
    counterstamp('erase', '--tenant', 'shop_north', '--subject', 'customer_1', ...more);

  test('erase counts, refuses while a run is open, asks unless it is told not to, and can be repeated', async () => {
    const row = await db.createRun({ subject: 'customer_1' });
    expect(await erase('--yes')).toMatchObject({
      exit: 1,
      printed: expect.stringContaining('1 run of customer_1 has not'),
    });
    const stop_reason = { code: 'invalid_input' as const, message: 'test' };
    await db.move('preflight', row, 'checks_failed', 'failed', { stop_reason }, null);
    expect(await erase('--dry-run')).toEqual({ exit: 0, printed: 'Would erase 1 value of 1 run.\n' });
    await expect(erase()).rejects.toThrow('There is no terminal to ask at');
    expect((await db.stores.verifier.load(row.run_id))?.manifest.erased_at).toBeNull();
    expect(await erase('--yes')).toEqual({ exit: 0, printed: 'customer_1 is erased: 1 value of 1 run.\n' });
    expect(await erase('--yes')).toMatchObject({ exit: 0, printed: expect.stringContaining('was erased at') });
    expect(JSON.parse((await erase('--json')).printed)).toMatchObject({
      subject: 'customer_1',
      result: 'already_erased',
    });

    const verified = await counterstamp('verify-history');
    expect(verified.printed).toContain('Erased: the personal data of 1; their digests stay.');
  });

  test('retention counts what is due and lets it go', async () => {
    const keep = ['--keep', 'evidence=0', '--keep', 'challenges=0'];
    const row = await db.createRun({ subject: 'case_2', request_id: 'case_2' });
    const stop_reason = { code: 'invalid_input' as const, message: 'test' };
    await db.move('preflight', row, 'checks_failed', 'failed', { stop_reason }, null);
    expect((await counterstamp('retention', '--dry-run', ...keep)).printed).toMatch(
      /WOULD GO\nevidence +0d .* 1\nchallenges +0d .* 0\n/,
    );
    expect((await db.stores.verifier.load(row.run_id))?.manifest.erased_at).toBeNull();
    const applied = JSON.parse((await counterstamp('retention', '--apply', ...keep, '--json')).printed) as object;
    expect(applied).toMatchObject({
      applied: true,
      classes: [{ class: 'evidence', count: 1 }, { class: 'challenges' }],
    });
    expect((await db.stores.verifier.load(row.run_id))?.manifest.erased_at).not.toBeNull();
  });
});
