import { expect, test } from 'vitest';
import { doctored, historyBuilder } from '../../../testing/history-builder.ts';
import type { RunHistory } from './history.ts';
import { judgeFleet } from './judge-fleet.ts';
import type { Ledger } from './ledger.ts';

const settle = { pause_ms: 500, provider_ms: 1_000 };
const NOW = '2026-09-30T14:10:00.000000Z';
const completed = (number: number) =>
  historyBuilder({ number, request_id: `case_${number}` })
    .approved()
    .dispatch()
    .arrives({ seq: number })
    .takesEffect()
    .accepted()
    .verified();
const both = [completed(1), completed(2)];
const histories = both.map(({ history }) => history);
const ledger: Ledger = {
  since: null,
  requests: both.flatMap((run) => run.ledger.requests),
  effects: both.flatMap((run) => run.ledger.effects),
};
async function* pages(...of: RunHistory[][]) {
  for (const page of of) yield await Promise.resolve({ now: NOW, histories: page });
}
const [first = expect.fail('none'), second = expect.fail('none')] = histories;

test('a fleet is judged page by page without a ledger, and as a whole with one', async () => {
  const alone = await judgeFleet({ pages: pages([first], [second]), readLedger: null, settle });
  expect(alone).toEqual({ runs: 2, runs_before_ledger: 0, ledger: null, violations: [], report: [] });
  const readLedger = () => Promise.resolve(ledger);
  const whole = await judgeFleet({ pages: pages([first], [second]), readLedger, settle });
  expect(whole).toEqual({ runs: 2, runs_before_ledger: 0, ledger, violations: [], report: [] });
});

test('requests count from before the histories were read, effects from after: a fleet may be at work', async () => {
  // The second run is dispatched, performed and verified while the first is being read.
  const reads = [{ since: null, requests: ledger.requests.slice(0, 1), effects: [] }, ledger];
  const readLedger = () => Promise.resolve(reads.shift() ?? expect.fail('read a third time'));
  expect(await judgeFleet({ pages: pages([first, second]), readLedger, settle })).toMatchObject({ violations: [] });
});

test('of some runs of many only their own part of the ledger is judged; of all, what belongs to none is named', async () => {
  const readLedger = () => Promise.resolve(ledger);
  const some = await judgeFleet({ pages: pages([first]), readLedger, settle, partial: true });
  expect(some).toMatchObject({ violations: [], ledger: { requests: [{ seq: 1 }], effects: [{ ref: 're_1_1' }] } });
  const all = await judgeFleet({ pages: pages([first]), readLedger, settle });
  expect(all).toMatchObject({ violations: [{ check: 'H4', code: 'no_attempt', run_id: null }] });
  expect(all.report).toEqual([expect.stringMatching(/^✗ H4 no_attempt: request 2 arrived/)]);
});

test('a request with no run at all is named, though there is no history to read', async () => {
  const readLedger = () => Promise.resolve({ ...ledger, requests: ledger.requests.slice(0, 1) });
  expect(await judgeFleet({ pages: pages(), readLedger, settle })).toMatchObject({ violations: [{ check: 'H4' }] });
});

test('a run that was dispatched before the ledger began is judged by the database alone', async () => {
  const since = '2026-09-30T14:00:05.000Z';
  const readLedger = () => Promise.resolve({ since, requests: [], effects: [] });
  expect(await judgeFleet({ pages: pages(histories), readLedger, settle })).toMatchObject({
    runs_before_ledger: 2,
    violations: [],
  });
  const early = () => Promise.resolve({ since: '2026-09-30T14:00:00.000Z', requests: [], effects: [] });
  expect(await judgeFleet({ pages: pages(histories), readLedger: early, settle })).toMatchObject({
    runs_before_ledger: 0,
    violations: [{ code: 'no_effect' }, { code: 'no_effect' }],
  });
});

test('a healed fleet is judged at the time at which its histories were read', async () => {
  const late = doctored(first, ({ run }) => void Object.assign(run, { wake_at: '2026-09-30T14:09:59.000Z' }));
  const codes = async (overdue_ms?: number) => {
    const healed = overdue_ms === undefined ? {} : { overdue_ms };
    const { violations } = await judgeFleet({ pages: pages([late]), readLedger: null, settle, ...healed });
    return violations.map(({ code }) => code);
  };
  expect(await codes()).toEqual([]);
  expect(await codes(1_000)).toEqual([]);
  expect(await codes(999)).toEqual(['overdue']);
});

test('one attempt before the ledger began is enough for a run to be judged without it', async () => {
  const { history } = historyBuilder().approved().dispatch().uncertain().after(60_000).retryRecorded().dispatch();
  const readLedger = () => Promise.resolve({ since: '2026-09-30T14:00:05.000Z', requests: [], effects: [] });
  expect(await judgeFleet({ pages: pages([history]), readLedger, settle })).toMatchObject({ runs_before_ledger: 1 });
});
