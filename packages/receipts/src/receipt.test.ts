import { describe, expect, test } from 'vitest';
import {
  checkpointAt,
  completedStory,
  KEYS,
  ORIGIN,
  type Predicate,
  type StoryOptions,
  stoppedStory,
  TRUSTED,
} from '../testing/receipt-story.ts';
import { makeReceipt, RECEIPT_CHECKS, type ReceiptCheck, verifyReceipt } from './receipt.ts';

async function verified(predicate: Predicate) {
  const { checks, ok } = await verifyReceipt(makeReceipt(predicate, KEYS.receipt), TRUSTED, { origin: ORIGIN });
  const of = (check: ReceiptCheck) => checks.find((one) => one.check === check);
  return { ok, of, failed: checks.filter((one) => one.ok === false).map(({ check }) => check), checks };
}

describe('a receipt that holds', () => {
  test('says so check by check, in sentences', async () => {
    const { ok, checks } = await verified(await completedStory());
    expect(ok).toBe(true);
    expect(checks.map(({ check }) => check)).toEqual(RECEIPT_CHECKS);
    for (const { sentence } of checks) expect(sentence).toMatch(/^\w[\x20-\x7e]*\.$/);
  });
  test('has an entry for each check when the run stopped early, too', async () => {
    const { ok, checks } = await verified(stoppedStory());
    expect(ok).toBe(true);
    for (const { sentence } of checks) expect(sentence).toMatch(/^\w[\x20-\x7e]*\.$/);
  });
  test.each(['awaiting_approval', 'executing'] as const)('may be of a run that is %s', async (until) => {
    expect((await verified(await completedStory({ until }))).failed).toEqual([]);
  });
  test('says what no checkpoint covers, when there is none and when it is behind', async () => {
    const completed = await completedStory();
    const without = await verified({ ...completed, checkpoint: null });
    expect(without.of('checkpoint')).toMatchObject({ ok: 'absent', sentence: expect.stringContaining('cut off') });
    const behind = await verified({ ...completed, checkpoint: checkpointAt(completed.events, 9) });
    expect(behind.ok).toBe(true);
    expect(behind.of('checkpoint')?.sentence).toContain('revisions 10 to 11');
  });
  test('says which facts are withheld, and why', async () => {
    const completed = await completedStory();
    const [first, second] = completed.evidence;
    const evidence = [first, second].map((item, n) => ({ ...item, facts: n === 0 ? 'erased' : 'not_disclosed' }));
    const { ok, of } = await verified({ ...completed, evidence: evidence as Predicate['evidence'] });
    expect(ok).toBe(true);
    expect(of('evidence')?.sentence).toMatch(/Of 1 the facts were erased.*Of 1 the facts are not disclosed/);
  });
});

describe('enough approvals', () => {
  test.each<[string, StoryOptions, ReceiptCheck[]]>([
    ['are sessions where a session counts', { method: 'session', decidedBy: 'session' }, []],
    ['are development keys where a session counts', { method: 'session', decidedBy: 'dev_key' }, []],
    ['are passkeys where a session counts', { method: 'session' }, []],
    ['are not sessions where a passkey is asked for', { decidedBy: 'session' }, ['approvals_sufficient']],
    ['are not those of the requester', { selfApproval: true }, ['approvals_sufficient']],
    ['are two who break the glass', { breakGlass: true }, []],
    [
      'are not two who break the glass without a signature',
      { breakGlass: true, method: 'session', decidedBy: 'session' },
      ['approvals_sufficient'],
    ],
  ])('%s', async (_, options, fails) => {
    expect((await verified(await completedStory(options))).failed).toEqual(fails);
  });
  test('are not those of the person for whom the requester acts', async () => {
    const completed = await completedStory();
    const run = { ...completed.run, on_behalf_of: 'prn_ben' };
    expect((await verified({ ...completed, run })).failed).toEqual(['run_state', 'approvals_sufficient']);
  });
  test('that were not signed are said to be so', async () => {
    const { of } = await verified(await completedStory({ method: 'session', decidedBy: 'dev_key' }));
    expect(of('decision_signatures')).toMatchObject({ ok: 'absent', sentence: expect.stringContaining('not signed') });
  });
  test('by breaking the glass are said loudly, with another reason than the signed one refused', async () => {
    const broken = await completedStory({ breakGlass: true });
    expect((await verified(broken)).of('approvals_sufficient')?.sentence).toMatch(/^BREAK GLASS/);
    const [first] = broken.decisions;
    if (first !== undefined) first.reason = { text: 'Everybody was at lunch.' };
    expect((await verified(broken)).failed).toEqual(['decision_signatures', 'approvals_sufficient']);
    if (first !== undefined) first.reason = 'erased';
    expect((await verified(broken)).failed).toEqual([]);
  });
  test('come from one console alone', async () => {
    const receipt = makeReceipt(await completedStory(), KEYS.receipt);
    const { checks } = await verifyReceipt(receipt, TRUSTED, { origin: 'https://elsewhere.example' });
    const failed = checks.filter(({ ok }) => ok === false).map(({ check }) => check);
    expect(failed).toEqual(['decision_signatures', 'approvals_sufficient']);
  });
});

describe('what is no receipt', () => {
  test.each([null, 'text', {}, { payloadType: 'a', payload: '!', signatures: [{ keyid: 'a', sig: 'b' }] }])(
    '%j fails the first two checks, and nothing is thrown',
    async (envelope) => {
      const { checks, ok } = await verifyReceipt(envelope, TRUSTED, { origin: ORIGIN });
      expect(ok).toBe(false);
      expect(checks.map(({ check, ok: held }) => [check, held])).toEqual([
        ['envelope_signature', false],
        ['statement', false],
      ]);
    },
  );
  test('is not made', async () => {
    const completed = await completedStory();
    expect(() => makeReceipt({ ...completed, issued_at: 'yesterday' }, KEYS.receipt)).toThrow();
  });
});

test('a report quotes nothing of a receipt that could rewrite a terminal', async () => {
  const completed = await completedStory();
  const [first] = completed.attempts;
  if (first !== undefined) first.provider_ref = '\u001b[2J\u202e';
  const { checks, of } = await verified(completed);
  expect(of('attempts')?.ok).toBe(false);
  for (const { sentence } of checks) expect(sentence).toMatch(/^[\x20-\x7e⟦⟧]*$/);
});
