import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { canonicalJson } from './canonical-json.ts';
import { digestOf } from './digest.ts';
import { EXPIRY_MARGIN_MS } from './durations.ts';
import { cyclesRemain, dispatchGuards, mayDispatch } from './guards.ts';
import type { Digest, Revision, RunId } from './ids.ts';
import type { Approval, Manifest } from './manifest.ts';
import { isStop } from './states.ts';
import { TRANSITIONS, type Trigger, transitionRule } from './transitions.ts';

const EPSILON_MS = 200;
const START_MS = Date.parse('2026-09-30T14:00:00.000Z');
const at = (ms: number) => new Date(ms).toISOString();
const durations = { epsilon_ms: EPSILON_MS };

function manifest(change: Partial<Manifest> = {}): Manifest {
  return {
    run_id: 'run_00000000-0000-7000-8000-000000000001' as RunId,
    tenant_id: 'shop_north',
    request_id: 'case_2841',
    generation: 1,
    supersedes: null,
    workflow: 'refund',
    workflow_version: 1,
    connector: 'sandbox-payments',
    connector_version: '1',
    proposer: 'rules',
    requested_by: 'prn_agent',
    created_at: at(START_MS),
    state: 'proposed',
    state_since: at(START_MS),
    committed_at: at(START_MS),
    revision: 5 as Revision,
    action_revision: null,
    counters: {
      read_failures: 0,
      proposal_cycles: 0,
      verification_waits: 0,
      look_ups: 0,
      attempts: 0,
      not_sent_retries: 0,
    },
    evidence_round: 1,
    evidence_complete: true,
    decisions_sufficient: false,
    retry_allowed: false,
    approval_life_ms: null,
    deadlines: { run: at(START_MS + 86_400_000), approval: null },
    wake_at: at(START_MS + 3_000),
    parked_reason: null,
    stop_reason: null,
    resource_key: null,
    in_flight_key: null,
    chain_head: `sha256:${'0'.repeat(64)}` as Digest,
    trace_context: null,
    input: {},
    allowed_operations: ['refund_order'],
    context: [],
    evidence: [],
    proposals: [],
    action: null,
    approval: null,
    attempts: [],
    observations: [],
    outcome: null,
    ...change,
  };
}

/** A run whose action of `amount` awaits approval from `nowMs` on. */
function asked(run: Manifest, amount: number, nowMs: number, lifeMs: number, approvals_required: number): Manifest {
  const fields = { operation: 'refund_order', amount_minor: amount };
  const canonical = canonicalJson(fields);
  const digest = digestOf('cs.action.v1', canonical);
  const action_revision = (run.revision + 1) as Revision;
  const approval: Approval = {
    approval_id: `apr_${action_revision}`,
    approval_digest: digestOf('cs.approval.v1', canonical),
    canonical: '{}',
    action_digest: digest,
    action_revision,
    approvals_required,
    policy: 'refund',
    policy_version: 1,
    policy_rule: 'one_person',
    display: [],
    expires_at: at(nowMs + lifeMs),
    decisions: [],
  };
  return {
    ...run,
    state: 'awaiting_approval',
    revision: action_revision,
    action_revision,
    action: { canonical, digest, fields },
    approval,
  };
}

function decided(run: Manifest, principal_id: string, decision: 'approve' | 'reject' = 'approve'): Manifest {
  if (run.approval === null) throw new Error('nothing asked');
  const { action_digest, action_revision, decisions } = run.approval;
  const vote = {
    decision_id: `dec_${run.revision}`,
    revision: run.revision,
    decision,
    principal_id,
    method: 'dev_key' as const,
    action_digest,
    action_revision,
    decided_at: at(START_MS),
    reason: null,
  };
  return {
    ...run,
    revision: (run.revision + 1) as Revision,
    approval: { ...run.approval, decisions: [...decisions, vote] },
  };
}

describe('a dispatch is refused', () => {
  const ready = decided(asked(manifest(), 4200, START_MS, 60_000, 1), 'prn_ada');
  const failing = (run: Manifest, nowMs = START_MS) =>
    dispatchGuards(run, nowMs, durations)
      .filter((guard) => !guard.pass)
      .map((guard) => guard.guard);

  test('not when every guard holds', () => {
    expect(failing(ready)).toEqual([]);
    expect(mayDispatch(ready, START_MS, durations)).toBe(true);
  });
  test.each<[string, Manifest, string]>([
    ['in another state', { ...ready, state: 'executing' }, 'state'],
    [
      'without a decision',
      { ...ready, approval: { ...(ready.approval as Approval), decisions: [] } },
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
    ['after a rejection', decided(ready, 'prn_bob', 'reject'), 'decisions_sufficient'],
    [
      'when the stored bytes were changed',
      {
        ...ready,
        action: {
          ...(ready.action as NonNullable<Manifest['action']>),
          canonical: '{"amount_minor":9900,"operation":"refund_order"}',
        },
      },
      'digest_matches',
    ],
    ['when another action was fixed since', { ...ready, action_revision: 9 as Revision }, 'revision_matches'],
    [
      'when the operation is not allowed for the run',
      { ...ready, allowed_operations: ['read_order'] },
      'operation_allowed',
    ],
    ['before anything was asked', manifest(), 'approval_asked'],
  ])('%s', (_, run, guard) => {
    expect(failing(run)).toContain(guard);
    expect(mayDispatch(run, START_MS, durations)).toBe(false);
  });

  test('from ε + 1 s before the expiry on', () => {
    const edge = START_MS + 60_000 - EPSILON_MS - EXPIRY_MARGIN_MS;
    expect(failing(ready, edge - 1)).toEqual([]);
    expect(failing(ready, edge)).toEqual(['approval_unexpired']);
    expect(failing(ready, START_MS + 60_000)).toEqual(['approval_unexpired']);
  });
  test('once the run’s deadline has passed', () => {
    expect(failing({ ...ready, deadlines: { run: at(START_MS), approval: null } })).toEqual(['run_deadline']);
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
            const may = mayDispatch(run, nowMs, durations);
            if (!may) {
              refused++;
              continue;
            }
            reached++;
            expect(run.action?.canonical).toBe(truth.bytes);
            expect(truth.no).toBe(false);
            expect(nowMs).toBeLessThan(truth.untilMs);
            expect([...truth.yes].filter((person) => person !== run.requested_by).length).toBeGreaterThanOrEqual(
              truth.required,
            );
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
