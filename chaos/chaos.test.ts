import { describe, expect, test } from 'vitest';
import { BACKENDS, type Backend } from './backends.ts';
import { runCell } from './cells/run-cell.ts';
import { chanceOf } from './chance.ts';
import { type ChaosFleet, startChaosFleet } from './harness.ts';
import { allCells, cellName, quickCells } from './matrix.ts';
import { type BackendReport, recoveryTimes, wrongIn } from './report.ts';
import { IN_FLIGHT_DEADLINE_MS, killAllInFlight, storms, weather } from './storms.ts';
import { networkCells, runNetworkCell } from './tcp-faults.ts';

/** Milliseconds for one backend's part on two shared cores; it takes about half. */
const PART_MS = 12 * 60_000;
/** The network's faults that a test run can afford: one of each way in which a send ends. */
const NETWORK = [
  'connection refused for 2 s',
  'name unknown for 2 s',
  'reset after the request',
  'black hole',
  'half a reply',
  '409',
  'request duplicated on the way',
];

describe.concurrent('whatever is done to it at any place, a run has its effect at most once and ends or is parked', () => {
  test.each(BACKENDS)(
    'on the %s queue: killed, stopped, wiped, restarted and doubled; cut off from its provider',
    async (backend) => {
      const report: BackendReport = { backend, cells: [], network: [], storms: [], kills: 0, fired: new Map() };
      await on({ backend }, async (chaos) => {
        for (const cell of quickCells(backend)) report.cells.push(await runCell(chaos, cell));
        report.fired = new Map(chaos.points.fired());
      });
      await on({ backend, names: true }, async (chaos) => {
        const chosen = networkCells().filter(
          ({ what, kind }) => NETWORK.includes(what) && (kind === 'key_with_retention' || what === 'black hole'),
        );
        for (const cell of chosen) report.network.push(await runNetworkCell(chaos, cell));
        const [flushed] = storms({ scale: 0.15 });
        if (flushed === undefined) throw new Error('there are no storms');
        report.storms.push(await weather(chaos, flushed, 1));
      });
      expect(wrongIn(report, { whole: true })).toEqual([]);
      const { moving, right } = recoveryTimes(report.cells);
      // Measured for the report (docs/operations/recovery-times.md); a time is no test.
      expect(Math.min(moving.length, right.length)).toBeGreaterThan(0);
    },
    PART_MS,
  );
});

describe('thirty sends in flight, every executor killed', () => {
  test.each(BACKENDS)(
    'on the %s queue: all are right without a person, each with one effect under the runtime’s key',
    async (backend) => {
      const { faults, right_after_ms } = await killAllInFlight(backend, { runs: 30, randomKeys: backend === 'redis' });
      expect(faults).toEqual([]);
      // Before any call's deadline: found by the lost session lease, not by the sweep of overdue attempts.
      expect(right_after_ms).toBeLessThan(IN_FLIGHT_DEADLINE_MS);
    },
    PART_MS,
  );
});

test('the matrix has every cell once, and its part has a kill at every point', () => {
  const names = allCells().map(cellName);
  expect(new Set(names).size).toBe(names.length);
  for (const backend of BACKENDS)
    expect(new Set(quickCells(backend).map(({ row }) => row.point))).toEqual(
      new Set(allCells().map(({ row }) => row.point)),
    );
});

test('a seed repeats its choices', () => {
  const draw = (seed: number) => {
    const chance = chanceOf(seed);
    return Array.from({ length: 50 }, () => chance.below(1_000));
  };
  expect(draw(7)).toEqual(draw(7));
  expect(draw(7)).not.toEqual(draw(8));
  expect(draw(7).every((n) => n >= 0 && n < 1_000)).toBe(true);
});

async function on(
  options: { backend: Backend; names?: boolean },
  act: (chaos: ChaosFleet) => Promise<void>,
): Promise<void> {
  const chaos = await startChaosFleet(options);
  try {
    await act(chaos);
  } finally {
    await chaos.stop();
  }
}
