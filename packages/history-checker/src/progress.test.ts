import { describe, expect, test } from 'vitest';
import { type Draft, doctored, historyBuilder } from '../../../testing/history-builder.ts';
import { dueOrParked } from './progress.ts';

const NOW = '2026-09-30T14:10:00.000000Z';
const HEALED = { now: NOW, overdue_ms: 2_000 };
const asked = () => historyBuilder().asked().history;
const waking = (history: Draft, wake_at: string | null) =>
  doctored(history, ({ run }) => void Object.assign(run, { wake_at: wake_at }));

describe('H11, due or parked', () => {
  test.each<[string, Draft]>([
    ['a run that is due', asked()],
    ['a parked run', historyBuilder().approved().dispatch().uncertain().parked().history],
    ['a closed run', historyBuilder().asked().expired().history],
  ])('holds for %s', (_, history) => {
    expect(dueOrParked(history, null)).toEqual([]);
  });

  test('is broken by a run that nobody will come back to', () => {
    expect(dueOrParked(waking(asked(), null), null)).toMatchObject([{ code: 'stuck' }]);
    const uncertain = historyBuilder().approved().dispatch().uncertain().history;
    expect(dueOrParked(waking(uncertain, null), HEALED)).toMatchObject([{ code: 'stuck' }]);
  });

  test.each<[string, string, string[]]>([
    ['lies ahead', '2026-09-30T14:10:00.000001Z', []],
    ['passed just now', '2026-09-30T14:09:58.000000Z', []],
    ['passed a microsecond too long ago', '2026-09-30T14:09:57.999999Z', ['overdue']],
  ])('in a healed fleet judges a wake-up that %s', (_, wake_at, expected) => {
    expect(dueOrParked(waking(asked(), wake_at), HEALED).map(({ code }) => code)).toEqual(expected);
    const failed = historyBuilder().approved().dispatch().rejected().history;
    expect(dueOrParked(waking(failed, wake_at), HEALED).map(({ code }) => code)).toEqual(expected);
  });

  test('in a fleet at work a late wake-up says nothing', () => {
    expect(dueOrParked(waking(asked(), '2020-01-01T00:00:00Z'), null)).toEqual([]);
  });
});
