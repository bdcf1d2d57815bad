import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ClosureFacts, closureAudits, nextClosureAudit } from './closure-audit.ts';

const failed: ClosureFacts = {
  state: 'failed',
  closed_at: 1_000,
  last_deadline: 1_200,
  first_started: 200,
  settle_ms: 300,
  closure_audit_ms: 2_000,
  retention_ms: 5_000,
  reversal_horizon_ms: 0,
};
const completed: ClosureFacts = { ...failed, state: 'completed', reversal_horizon_ms: 8_000 };

describe('a closed run is looked at', () => {
  test.each<[string, ClosureFacts, number[]]>([
    ['failed: at + settle, after the second wait, and when the key is forgotten', failed, [1_500, 3_000, 5_200]],
    ['failed: in order, also where settle is the longest', { ...failed, settle_ms: 9_000 }, [3_000, 5_200, 10_200]],
    ['failed, at a target without keys: no look for a key', { ...failed, retention_ms: null }, [1_500, 3_000]],
    ['failed, and no byte ever left: once', { ...failed, last_deadline: null, first_started: null }, [3_000]],
    ['completed: doubling as long as its status may turn', completed, [3_000, 5_000, 9_000]],
    [
      'completed: at last when nothing turns any more',
      { ...completed, reversal_horizon_ms: 7_999 },
      [3_000, 5_000, 8_999],
    ],
    ['completed, and soon final: once, then', { ...completed, reversal_horizon_ms: 500 }, [1_500]],
    ['completed, where a status never turns: never', { ...completed, reversal_horizon_ms: 0 }, []],
  ])('%s', (_, facts, instants) => {
    expect(closureAudits(facts)).toEqual(instants);
  });
});

test('the next look is the first that lies ahead, and none once the last has come', () => {
  expect([0, 1_499, 1_500, 2_999, 3_000, 5_199, 5_200].map((now) => nextClosureAudit(failed, now))).toEqual([
    1_500,
    1_500,
    3_000,
    3_000,
    5_200,
    5_200,
    null,
  ]);
  expect(nextClosureAudit({ ...completed, reversal_horizon_ms: 0 }, 0)).toBeNull();
});

test('from look to look a closed run comes to an end', () => {
  const instant = fc.integer({ min: 0, max: 1_000_000 });
  const span = fc.integer({ min: 1, max: 1_000_000 });
  fc.assert(
    fc.property(
      fc.record<ClosureFacts>({
        state: fc.constantFrom('failed', 'completed'),
        closed_at: instant,
        last_deadline: fc.option(instant),
        first_started: fc.option(instant),
        settle_ms: span,
        closure_audit_ms: span,
        retention_ms: fc.option(span),
        reversal_horizon_ms: fc.oneof(fc.constant(0), span),
      }),
      (facts) => {
        let now = facts.closed_at;
        let looks = 0;
        for (let next = nextClosureAudit(facts, now); next !== null; next = nextClosureAudit(facts, now)) {
          expect(next).toBeGreaterThan(now);
          now = next;
          looks++;
        }
        expect(looks).toBeLessThanOrEqual(closureAudits(facts).length);
      },
    ),
  );
});
