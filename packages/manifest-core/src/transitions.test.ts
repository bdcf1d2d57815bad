import { describe, expect, test } from 'vitest';
import { STATES, type State } from './states.ts';
import { STOP_REASONS } from './stop-reasons.ts';
import { FACTS, TRANSITIONS, TRIGGERS, transitionRule } from './transitions.ts';

/**
 * The specification (architecture.md section 2). Rows: trigger. Columns: the state it is met in; the cell: where the run goes. "·": illegal.
 * `q p c o a x v` are queued, preflight, collecting, proposed, awaiting_approval, executing, verifying; `C R E F N` the stops.
 */
const SPEC = `
                                -  q  p  c  o  a  x  v  C  R  E  F  N
request_accepted                q  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
request_loaded                  ·  p  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
read_failed                     ·  ·  p  c  ·  ·  ·  ·  ·  ·  ·  ·  ·
checks_passed                   ·  ·  c  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
checks_failed                   ·  F  F  F  F  ·  ·  ·  ·  ·  ·  ·  ·
evidence_recorded               ·  ·  ·  c  ·  ·  ·  ·  ·  ·  ·  ·  ·
proposal_asked_again            ·  ·  ·  c  ·  ·  ·  ·  ·  ·  ·  ·  ·
proposal_received               ·  ·  ·  o  ·  ·  ·  ·  ·  ·  ·  ·  ·
proposal_refused                ·  ·  ·  ·  c  ·  ·  ·  ·  ·  ·  ·  ·
action_fixed                    ·  ·  ·  ·  a  ·  ·  ·  ·  ·  ·  ·  ·
decision_recorded               ·  ·  ·  ·  ·  a  ·  ·  ·  ·  ·  ·  ·
decision_voided                 ·  ·  ·  ·  ·  a  ·  ·  ·  ·  ·  ·  ·
proposal_superseded             ·  ·  ·  ·  ·  c  ·  ·  ·  ·  ·  ·  ·
evidence_changed                ·  ·  ·  ·  ·  c  ·  ·  ·  ·  ·  ·  ·
approval_rejected               ·  ·  ·  ·  ·  R  ·  ·  ·  ·  ·  ·  ·
approval_expired                ·  ·  ·  ·  ·  E  ·  ·  ·  ·  ·  ·  ·
dispatch_refused                ·  ·  ·  ·  ·  F  ·  ·  ·  ·  ·  ·  ·
dispatched                      ·  ·  ·  ·  ·  x  ·  ·  ·  ·  ·  ·  ·
cancelled                       ·  R  R  R  R  R  ·  ·  ·  ·  ·  ·  ·
deadline_passed                 ·  F  F  F  F  F  ·  N  ·  ·  ·  ·  ·
effect_accepted                 ·  ·  ·  ·  ·  ·  v  ·  ·  ·  ·  ·  ·
effect_rejected                 ·  ·  ·  ·  ·  ·  F  ·  ·  ·  ·  ·  ·
outcome_uncertain               ·  ·  ·  ·  ·  ·  N  ·  ·  ·  ·  ·  ·
nothing_sent                    ·  ·  ·  ·  ·  ·  N  ·  ·  ·  ·  ·  ·
attempt_overdue                 ·  ·  ·  ·  ·  ·  N  ·  ·  ·  ·  ·  ·
verification_pending            ·  ·  ·  ·  ·  ·  ·  v  ·  ·  ·  ·  ·
effect_verified                 ·  ·  ·  ·  ·  ·  ·  C  ·  ·  ·  ·  ·
settlement_failed               ·  ·  ·  ·  ·  ·  ·  F  ·  ·  ·  ·  ·
verification_failed             ·  ·  ·  ·  ·  ·  ·  N  ·  ·  ·  ·  ·
look_inconclusive               ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  N
retry_recorded                  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  N
resend_recorded                 ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  N
retry_refused                   ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  N
parked                          ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  N
person_unsure                   ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  N
effect_found                    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  v
person_landed                   ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  v
retry_dispatched                ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  x
never_sent                      ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  F
person_absent                   ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  F
person_settled_with_difference  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  F
late_effect_found               ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  N  N
effect_reversed                 ·  ·  ·  ·  ·  ·  ·  ·  N  ·  ·  ·  ·`;

const LETTERS: Readonly<Record<string, State>> = {
  q: 'queued',
  p: 'preflight',
  c: 'collecting',
  o: 'proposed',
  a: 'awaiting_approval',
  x: 'executing',
  v: 'verifying',
  C: 'completed',
  R: 'rejected',
  E: 'expired',
  F: 'failed',
  N: 'needs_reconciliation',
};

const [header = '', ...lines] = SPEC.trim().split('\n');
const columns = header.trim().split(/\s+/);
const cells = lines.flatMap((line) => {
  const [on = '', ...row] = line.trim().split(/\s+/);
  return columns.map((column, i) => ({
    on,
    from: column === '-' ? null : (LETTERS[column] ?? null),
    to: LETTERS[row[i] ?? ''] ?? null,
  }));
});

describe('the table of legal moves', () => {
  test('covers every state and every trigger', () => {
    expect(new Set(cells.map((cell) => cell.on))).toEqual(new Set(TRIGGERS));
    expect(cells).toHaveLength(TRIGGERS.length * (STATES.length + 1));
  });

  test.each(cells.filter((cell) => cell.to !== null))('$from on $on goes to $to', ({ from, on, to }) => {
    expect(transitionRule(from, on)?.to).toBe(to);
  });

  test('every other pair is illegal', () => {
    const illegal = cells.filter((cell) => cell.to === null && transitionRule(cell.from, cell.on) !== undefined);
    expect(illegal).toEqual([]);
  });

  test('no pair has two rules', () => {
    const pairs = TRANSITIONS.map((rule) => `${rule.from}/${rule.on}`);
    expect(new Set(pairs).size).toBe(pairs.length);
  });

  test('only the executor may begin an effect, and only with an attempt and a guard', () => {
    for (const rule of TRANSITIONS.filter((candidate) => candidate.to === 'executing')) {
      expect(rule.by).toEqual(['executor']);
      expect(rule.facts).toContain('attempt');
      expect(rule).toMatchObject({ guard: 'mayDispatch', counts: 'attempts' });
    }
  });

  test('terminal-stays-terminal: a closed state is left only by the listed recovery moves, and rejected and expired never', () => {
    const leaving = TRANSITIONS.filter((rule) =>
      ['completed', 'rejected', 'expired', 'failed'].includes(rule.from ?? ''),
    );
    expect(leaving.map((rule) => rule.on).sort()).toEqual(['effect_reversed', 'late_effect_found']);
    expect(leaving.every((rule) => rule.to === 'needs_reconciliation')).toBe(true);
  });

  test('needs_reconciliation never restarts execution by itself: the reconciler only records that a retry is allowed', () => {
    const byReconciler = TRANSITIONS.filter(
      (rule) => rule.from === 'needs_reconciliation' && (rule.by as readonly string[]).includes('reconciler'),
    );
    expect(byReconciler.map((rule) => rule.to)).not.toContain('executing');
  });

  test('every fact is written by somebody, and every loop that stays in its state is counted or a person’s', () => {
    for (const fact of FACTS)
      expect(TRANSITIONS.some((rule) => (rule.facts as readonly string[]).includes(fact))).toBe(true);
    const uncounted = TRANSITIONS.filter((rule) => rule.from === rule.to && !('counts' in rule)).map((rule) => rule.on);
    expect(uncounted.sort()).toEqual([
      'decision_recorded',
      'decision_voided',
      'evidence_recorded',
      'late_effect_found',
      'parked',
      'person_unsure',
    ]);
  });

  test('every stop reason belongs to a state that a stop with a reason can be', () => {
    for (const [code, entry] of Object.entries(STOP_REASONS)) {
      expect(code).toMatch(/^[a-z_]+$/);
      expect(entry.states.length).toBeGreaterThan(0);
      expect(entry.message.endsWith('.') && entry.next.endsWith('.')).toBe(true);
    }
  });
});
