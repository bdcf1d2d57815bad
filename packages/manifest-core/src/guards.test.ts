import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { asked as askedFor, at, decided, manifest, START_MS } from '../../../testing/manifest-builder.ts';
import { EXPIRY_MARGIN_MS } from './durations.ts';
import { cyclesRemain, dispatchGuards } from './guards.ts';
import type { Revision } from './ids.ts';
import type { Approval, Manifest } from './manifest.ts';
import { isStop } from './states.ts';
import { TRANSITIONS, type Trigger, transitionRule } from './transitions.ts';

const EPSILON_MS = 200;
const durations = { epsilon_ms: EPSILON_MS };

/** Whether the manifest alone permits a dispatch. */
function ready(run: Manifest, nowMs: number): boolean {
  return dispatchGuards(run, nowMs, durations).every((guard) => guard.pass);
}

/** A run whose refund of `amount` awaits approval from `nowMs` on. */
function asked(run: Manifest, amount: number, nowMs: number, lifeMs: number, approvals_required: number): Manifest {
  const fields = { operation: 'refund_order', amount_minor: amount };
  return askedFor(run, fields, { nowMs, lifeMs, approvals_required });
}

describe('a dispatch is refused', () => {
  const approved = decided(asked(manifest(), 4200, START_MS, 60_000, 1), 'prn_ada');
  const failing = (run: Manifest, nowMs = START_MS) =>
    dispatchGuards(run, nowMs, durations)
      .filter((guard) => !guard.pass)
      .map((guard) => guard.guard);

  test('not when every guard holds', () => {
    expect(failing(approved)).toEqual([]);
    expect(ready(approved, START_MS)).toBe(true);
  });
  test.each<[string, Manifest, string]>([
    ['in another state', { ...approved, state: 'executing' }, 'state'],
    [
      'without a decision',
      { ...approved, approval: { ...(approved.approval as Approval), decisions: [] } },
      'decisions_sufficient',
    ],
    [
      'with the requester’s own approval only',
      decided(asked(manifest(), 4200, START_MS, 60_000, 1), 'prn_agent'),
      'decisions_sufficient',
    ],
    [
      'with one person’s two approvals where two people are asked',
      decided(decided(asked(manifest(), 4200, START_MS, 60_000, 2), 'prn_ada'), 'prn_ada'),
      'decisions_sufficient',
    ],
    ['after a rejection', decided(approved, 'prn_bob', 'reject'), 'decisions_sufficient'],
    [
      'when the stored bytes were changed',
      {
        ...approved,
        action: {
          ...(approved.action as NonNullable<Manifest['action']>),
          canonical: '{"amount_minor":9900,"operation":"refund_order"}',
        },
      },
      'digest_matches',
    ],
    ['when another action was fixed since', { ...approved, action_revision: 9 as Revision }, 'revision_matches'],
    [
      'when the operation is not allowed for the run',
      { ...approved, allowed_operations: ['read_order'] },
      'operation_allowed',
    ],
    ['before anything was asked', manifest(), 'approval_asked'],
  ])('%s', (_, run, guard) => {
    expect(failing(run)).toContain(guard);
    expect(ready(run, START_MS)).toBe(false);
  });

  test('from ε + 1 s before the expiry on', () => {
    const edge = START_MS + 60_000 - EPSILON_MS - EXPIRY_MARGIN_MS;
    expect(failing(approved, edge - 1)).toEqual([]);
    expect(failing(approved, edge)).toEqual(['approval_unexpired']);
    expect(failing(approved, START_MS + 60_000)).toEqual(['approval_unexpired']);
  });
  test('once the run’s deadline has passed', () => {
    expect(failing({ ...approved, deadlines: { run: at(START_MS), approval: null } })).toEqual(['run_deadline']);
  });
});

const TOWARDS: ReadonlySet<Trigger> = new Set<Trigger>([
  'proposal_received',
  'action_fixed',
  'decision_recorded',
  'dispatched',
]);

describe('no-effect-without-approval', () => {
  type Step = {
    pick: number;
    amount: number;
    person: string;
    lifeMs: number;
    required: number;
    passMs: number;
    tamper: boolean;
  };
  const steps = fc.array(
    fc.record<Step>({
      pick: fc.nat(),
      amount: fc.integer({ min: 1, max: 3 }),
      person: fc.constantFrom('prn_agent', 'prn_ada', 'prn_bob'),
      lifeMs: fc.constantFrom(2_000, 60_000),
      required: fc.constantFrom(1, 1, 2),
      passMs: fc.constantFrom(0, 0, 0, 500, 5_000),
      tamper: fc.integer({ min: 0, max: 20 }).map((n) => n === 0),
    }),
    { minLength: 10, maxLength: 40 },
  );

  /** What really happened, kept apart from the manifest: who approved which bytes at which request, and until when. */
  interface Truth {
    bytes: string | null;
    yes: Set<string>;
    no: boolean;
    untilMs: number;
    required: number;
  }

  test('no sequence of legal triggers reaches executing without a sufficient, unexpired, matching approval', () => {
    let reached = 0;
    let refused = 0;
    fc.assert(
      fc.property(steps, (sequence) => {
        let run = manifest();
        let nowMs = START_MS;
        let truth: Truth = { bytes: null, yes: new Set(), no: false, untilMs: 0, required: 1 };
        for (const step of sequence) {
          nowMs += step.passMs;
          if (step.tamper && run.action !== null)
            run = { ...run, action: { ...run.action, canonical: `${run.action.canonical} ` } };
          // Picked by weight, so that the walk goes towards the gate instead of ending in a stop.
          const legal = TRANSITIONS.filter((rule) => rule.from === run.state).flatMap((rule): Trigger[] =>
            Array(TOWARDS.has(rule.on) ? 24 : isStop(rule.to) ? 1 : 4).fill(rule.on),
          );
          const on = legal[step.pick % Math.max(1, legal.length)];
          const rule = on === undefined ? undefined : transitionRule(run.state, on);
          if (on === undefined || rule === undefined) continue;
          if (rule.guard === 'mayDispatch') {
            const may = ready(run, nowMs);
            if (!may) {
              refused++;
              continue;
            }
            reached++;
            const entitled = [...truth.yes].filter((person) => person !== run.requested_by).length;
            if (run.action?.canonical !== truth.bytes) throw new Error('other bytes than those asked about');
            if (truth.no) throw new Error('somebody rejected');
            if (nowMs >= truth.untilMs) throw new Error('the approval had expired');
            if (entitled < truth.required) throw new Error(`${entitled} of ${truth.required} approvals`);
          }
          if (on === 'action_fixed') {
            run = asked(run, step.amount, nowMs, step.lifeMs, step.required);
            truth = {
              bytes: run.action?.canonical ?? null,
              yes: new Set(),
              no: false,
              untilMs: nowMs + step.lifeMs,
              required: step.required,
            };
          } else if (on === 'decision_recorded' || on === 'approval_rejected') {
            const decision = on === 'decision_recorded' ? 'approve' : 'reject';
            run = { ...decided(run, step.person, decision), state: rule.to };
            if (decision === 'approve') truth.yes.add(step.person);
            else truth.no = true;
          } else {
            // A superseded or outdated action leaves its approval behind.
            run = {
              ...run,
              state: rule.to,
              revision: (run.revision + 1) as Revision,
              ...(rule.to === 'collecting' ? { action: null, approval: null, action_revision: null } : {}),
            };
          }
        }
      }),
      { numRuns: 5_000 },
    );
    // A property that never meets its premise proves nothing.
    expect(reached).toBeGreaterThan(100);
    expect(refused).toBeGreaterThan(100);
  });
});

test('cycles remain until the last one is used', () => {
  const counters = manifest().counters;
  expect(
    [0, 1, 2, 3].map((proposal_cycles) => cyclesRemain({ counters: { ...counters, proposal_cycles } }, 3)),
  ).toEqual([true, true, false, false]);
});
