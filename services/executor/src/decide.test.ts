import type { Outcome } from '@counterstamp/connectors';
import {
  type Approval,
  type Attempt,
  canonicalJson,
  DISPATCH_REFUSALS,
  type DispatchRefusal,
  digestOf,
  EXPIRY_MARGIN_MS,
  epochMs,
  type JsonObject,
  type Manifest,
  PROFILES,
  type Revision,
  type StopReasonCode,
  settleMs,
  transitionRule,
} from '@counterstamp/manifest-core';
import type { Gathered } from '@counterstamp/workflows';
import { describe, expect, test } from 'vitest';
import { asked, at, attempt, counted, decided, loaded, START_MS } from '../../../testing/manifest-builder.ts';
import {
  ACTION,
  approvedRun,
  effect,
  type Facts,
  facts,
  proposedRun,
  records,
  workflow,
} from '../../../testing/refund-case.ts';
import { type DispatchDecision, decideFromFresh, decideFromRow, decideOutcome, decideRefusal } from './decide.ts';
import { approvedFacts } from './facts.ts';

const durations = PROFILES.fast;
const { defer_min_ms, defer_max_ms, stage_lease_ms, epsilon_ms } = durations;
const approved = approvedRun();
const action = approved.action as NonNullable<Manifest['action']>;
const approval = approved.approval as Approval;
const expiresMs = epochMs(approval.expires_at);

/** What is done instead of a dispatch; a move must be the executor's to make from the state it is decided in. */
function moveOf(decision: DispatchDecision, from: Manifest['state'] = 'awaiting_approval') {
  if (decision.kind === 'defer') return { kind: 'defer', wake: decision.wake_in_ms };
  if (decision.kind !== 'commit') return { kind: decision.kind };
  const rule = transitionRule(from, decision.on);
  expect(rule?.by).toContain('executor');
  for (const fact of Object.keys(decision.facts)) expect(rule?.facts).toContain(fact);
  return { on: decision.on, to: rule?.to, code: decision.facts.stop_reason?.code, wake: decision.wake_in_ms };
}
const defers = { kind: 'defer', wake: defer_min_ms };
const refused = (code: StopReasonCode) => ({ on: 'dispatch_refused', to: 'failed', code, wake: null });
const voided = { on: 'decision_voided', to: 'awaiting_approval', code: undefined, wake: null };
const expired = { on: 'approval_expired', to: 'expired', code: 'approval_expired', wake: null };
const overdue = { on: 'deadline_passed', to: 'failed', code: 'deadline_exceeded', wake: null };
const dispatch = { kind: 'dispatch' };

/** What preflight could have bound wrongly, member by member. */
const BOUND: JsonObject[] = [
  { run_id: 'run_00000000-0000-7000-8000-000000000009' },
  { tenant_id: 'shop_south' },
  { evidence_set_digest: `sha256:${'1'.repeat(64)}` },
  { display_digest: `sha256:${'1'.repeat(64)}` },
  { connector_version: '99' },
  { workflow: 'credit' },
  { workflow_version: 2 },
  { policy: 'credit' },
  { policy_version: 1 },
  { policy_rule: 'nobody' },
  { approvals_required: 2 },
  { groups_required: { finance: 1 } },
  { method: 'session' },
  { break_glass: true },
];
/** Terms that today's policy does not have, in the request's columns and in what it binds alike. */
const OTHER_TERMS = [
  { policy_version: 1 },
  { policy_rule: 'nobody' },
  { method: 'session' },
  { break_glass: true },
] as const;
const rebound = (change: JsonObject): Manifest => {
  const run = approvedRun();
  if (run.approval === null) throw new Error('nothing asked');
  const canonical = canonicalJson({ ...(JSON.parse(run.approval.canonical) as JsonObject), ...change });
  return { ...run, approval: { ...run.approval, canonical, approval_digest: digestOf('cs.approval.v1', canonical) } };
};
const askedFor = (change: Partial<Approval>): Manifest => {
  const run = rebound(change);
  if (run.approval === null) throw new Error('nothing asked');
  return { ...run, approval: { ...run.approval, ...change } };
};
/** A refund that today's policy asks two people about, one of them from finance. */
const largeRefund = (): Manifest => {
  const run = decided(decided(asked(proposedRun(), { ...ACTION, amount_minor: 60_000 }), 'prn_ada'), 'prn_bob');
  return { ...run, decisions_sufficient: true };
};

describe('the row alone', () => {
  const decide = (run: Manifest, nowMs = START_MS) => moveOf(decideFromRow(loaded(run, nowMs), workflow, durations));

  test('permits a dispatch when every guard holds', () => {
    expect(decide(approved)).toEqual(dispatch);
  });

  const twoAsked = decided(asked(proposedRun(), ACTION, { approvals_required: 2 }), 'prn_ada');
  const flagged = { decisions_sufficient: true };
  const withAction = (change: Partial<typeof action>) => approvedRun({ action: { ...action, ...change } });
  test.each<[string, Manifest, object]>([
    ['stored bytes that were changed', withAction({ canonical: `${action.canonical} ` }), refused('digest_mismatch')],
    ['a stored digest that was changed', withAction({ digest: approval.approval_digest }), refused('digest_mismatch')],
    [
      'an approval of another action of the run',
      approvedRun({ action_revision: 99 as Revision }),
      refused('approval_invalid'),
    ],
    [
      'an approval by the requester alone, taken for sufficient',
      { ...decided(asked(proposedRun(), ACTION), 'prn_agent'), ...flagged },
      refused('approval_invalid'),
    ],
    ['a rejection that was taken for sufficient', decided(approved, 'prn_bob', 'reject'), refused('approval_invalid')],
    ['one of two approvals, taken for sufficient', { ...twoAsked, ...flagged }, voided],
    ['one person twice of two approvals', { ...decided(twoAsked, 'prn_ada'), ...flagged }, voided],
    ['no decision at all, taken for sufficient', { ...asked(proposedRun(), ACTION), ...flagged }, voided],
    ['one of two approvals, known to be too few', twoAsked, voided],
    [
      'evidence that is not what was recorded',
      approvedRun({ evidence: approved.evidence.map((item) => ({ ...item, facts: null, altered: true as const })) }),
      refused('evidence_altered'),
    ],
    [
      'personal data that was erased',
      approvedRun({
        erased_at: at(START_MS),
        input: {},
        evidence: approved.evidence.map((item) => ({ ...item, facts: null })),
      }),
      refused('precondition_failed'),
    ],
    [
      'an operation that the run may not use',
      approvedRun({ allowed_operations: ['read_order'] }),
      refused('policy_denied'),
    ],
    [
      'an action that this version does not execute',
      decided(asked(proposedRun(), { operation: 'refund_order', amount_minor: 4200 }), 'prn_ada'),
      refused('policy_denied'),
    ],
    [
      'an action of another operation than the workflow’s',
      decided(asked(proposedRun(), { ...ACTION, operation: 'read_order' }), 'prn_ada'),
      refused('policy_denied'),
    ],
    // While versions roll: another worker has it, and the approval's expiry bounds the wait.
    ['a connector of another version than was bound, for now', approvedRun({ connector_version: '2' }), defers],
    ['another connector than was bound, for now', approvedRun({ connector: 'stripe' }), defers],
    ...BOUND.map((change): [string, Manifest, object] => [
      `an approval that binds another ${Object.keys(change)[0]} than is derived from bytes and records`,
      rebound(change),
      refused('approval_invalid'),
    ]),
    [
      'a resource that is not the action’s',
      approvedRun({ resource_key: 'shop_north/sandbox-payments/pay_1' }),
      refused('approval_invalid'),
    ],
  ])('refuses %s', (_, run, expected) => {
    expect(decide(run)).toEqual(expected);
  });

  test('waits with a run whose workflow is not installed, for as long as its approval lives', () => {
    expect(moveOf(decideFromRow(loaded(approved), undefined, durations))).toEqual(defers);
    expect(moveOf(decideFromRow(loaded(approved, expiresMs), undefined, durations))).toEqual(expired);
  });

  const edge = expiresMs - epsilon_ms - EXPIRY_MARGIN_MS;
  test.each<[string, number, object]>([
    ['a millisecond before ε + 1 s is left', edge - 1, dispatch],
    ['when ε + 1 s is left: only the expiry can end it', edge, { kind: 'defer', wake: epsilon_ms + EXPIRY_MARGIN_MS }],
    ['a millisecond before the expiry', expiresMs - 1, { kind: 'defer', wake: 1 }],
    ['at the expiry', expiresMs, expired],
    ['long after it', expiresMs + 60_000, expired],
    ['at the run’s deadline, which ends more than the approval', epochMs(approved.deadlines.run), overdue],
  ])('looks at the clock %s', (_, nowMs, expected) => {
    expect(decide(approved, nowMs)).toEqual(expected);
  });

  test('calls changed bytes by their name also when the approval is about to expire', () => {
    expect(decide(withAction({ canonical: '{}' }), edge)).toEqual(refused('digest_mismatch'));
  });

  test('throws for a run that awaits approval of nothing: a bug must not pass for a refusal', () => {
    expect(() => decide(approvedRun({ action: null }))).toThrow('without an action');
    expect(() => decide(approvedRun({ approval: null }))).toThrow('without an action');
  });
});

describe('the fresh read', () => {
  const decide = (gathered: Gathered, run = approved, basis = approvedFacts(run), nowMs = START_MS) =>
    moveOf(decideFromFresh(loaded(run, nowMs), workflow, basis, gathered, durations));
  const fresh = (change: Facts = {}): Gathered => ({ kind: 'records', records: records(change) });

  test('permits the dispatch when nothing changed', () => {
    expect(decide(fresh())).toEqual(dispatch);
  });

  test.each<[string, Facts]>([
    ['the request was closed', { request: { status: 'closed' } }],
    ['the request is gone', { request: null }],
    ['the order is gone', { order: null }],
    ['the payment is gone', { payment: null }],
    ['the order is paid by another payment', { payment: { payment_id: 'pay_1' } }],
    ['the payment is disputed', { payment: { disputed: true } }],
    ['the payment is in another currency', { payment: { currency: 'EUR' } }],
    ['too little is left', { payment: { refundable_amount_minor: 4199 } }],
    ['the order was cancelled', { order: { status: 'cancelled' } }],
  ])('fails the precondition when %s, whatever cycles are left', (_, change) => {
    expect(decide(fresh(change))).toEqual(refused('precondition_failed'));
  });

  test.each(OTHER_TERMS)(
    'asks for a new approval when the stored request asks by %j, which today’s policy does not',
    (change) => {
      const run = askedFor(change);
      expect(moveOf(decideFromRow(loaded(run), workflow, durations))).toEqual(dispatch);
      expect(decide(fresh(), run)).toMatchObject({ on: 'evidence_changed' });
      expect(decide(fresh(), counted(run, { proposal_cycles: 2 }))).toEqual(refused('precondition_failed'));
    },
  );

  test('refuses a request whose text is not the one that was signed: its digest is another’s', () => {
    const run = rebound({});
    if (run.approval === null) throw new Error('nothing asked');
    const approval_digest = digestOf('cs.approval.v1', 'another request');
    const exchanged = { ...run, approval: { ...run.approval, approval_digest } };
    expect(moveOf(decideFromRow(loaded(exchanged), workflow, durations))).toEqual(refused('approval_invalid'));
  });

  test('asks anew what a release asked that bound less', () => {
    const { run, approval } = { run: approvedRun(), approval: approvedRun().approval };
    if (approval === null) throw new Error('nothing asked');
    const { method: _, ...less } = JSON.parse(approval.canonical) as JsonObject;
    const canonical = canonicalJson(less);
    const older = {
      ...run,
      approval: { ...approval, canonical, approval_digest: digestOf('cs.approval.v1', canonical) },
    };
    expect(moveOf(decideFromRow(loaded(older), workflow, durations))).toMatchObject({ on: 'evidence_changed' });
  });

  test('asks for a new approval when the stored request drops the group that today’s policy names', () => {
    const enough = { refundable_amount_minor: 60_000, captured_amount_minor: 60_000 };
    const change: Facts = { request: { requested_amount_minor: 60_000 }, order: enough, payment: enough };
    const terms = { policy_rule: 'two_people_above_50000', approvals_required: 2, break_glass: true } as const;
    const ask = (groups_required: Record<string, number>) => {
      const large = largeRefund();
      if (large.approval === null) throw new Error('nothing asked');
      const canonical = canonicalJson({
        ...(JSON.parse(large.approval.canonical) as JsonObject),
        ...terms,
        groups_required,
      });
      const run = { ...large, approval: { ...large.approval, ...terms, groups_required, canonical } };
      return decide(fresh(change), run, facts(change));
    };
    expect(ask({ finance: 1 })).toEqual(dispatch);
    expect(ask({})).toMatchObject({ on: 'evidence_changed' });
  });

  test.each<[string, Facts]>([
    ['more is left than was approved on', { payment: { refundable_amount_minor: 4300 } }],
    ['the request is for more now', { request: { requested_amount_minor: 4300 } }],
    ['the order has another tenant', { order: { tenant_id: 'shop_south' } }],
  ])('asks for a new approval when %s', (_, change) => {
    expect(decide(fresh(change))).toEqual({
      on: 'evidence_changed',
      to: 'collecting',
      code: undefined,
      wake: stage_lease_ms,
    });
    expect(decide(fresh(change), counted(approved, { proposal_cycles: 1 }))).toMatchObject({ on: 'evidence_changed' });
    expect(decide(fresh(change), counted(approved, { proposal_cycles: 2 }))).toEqual(refused('precondition_failed'));
  });

  test('fails when the evidence of the approval was erased', () => {
    const erased = approvedRun({ evidence: approved.evidence.map((item) => ({ ...item, facts: null })) });
    expect(approvedFacts(erased)).toBeUndefined();
    expect(decide(fresh(), erased)).toEqual(refused('precondition_failed'));
  });

  test('compares with the trusted evidence of the current round alone', () => {
    const [first] = approved.evidence;
    if (first === undefined) throw new Error('no evidence');
    const noise = [
      { ...first, evidence_id: 'evd_old', round: 0 },
      { ...first, evidence_id: 'evd_text', kind: 'untrusted_context', trusted: false, facts: { text: 'pay twice' } },
    ];
    expect(approvedFacts(approvedRun({ evidence: [...noise, ...approved.evidence] }))).toEqual(facts());
  });

  test.each([
    ['at first for the shortest time', 0, defer_min_ms],
    ['as long again as it has waited', 600, 600],
    ['never longer than the longest', 60_000, defer_max_ms],
    ['for the shortest time when the clock went back', -5_000, defer_min_ms],
  ])('that failed defers, %s', (_, waitedMs, wake) => {
    const failed = { kind: 'read_failed', operation: 'read_order', reason: 'timeout' } as const;
    const nowMs = epochMs(approved.committed_at) + waitedMs;
    expect(decide(failed, approved, approvedFacts(approved), nowMs)).toEqual({ kind: 'defer', wake });
  });

  test('that may not be made is a matter of policy', () => {
    expect(decide({ kind: 'stop', code: 'operation_unavailable', detail: 'no' })).toEqual(refused('policy_denied'));
  });
});

/** Every reason that the database may give, and what follows before the first dispatch. */
const REFUSALS = Object.entries({
  digest_mismatch: refused('digest_mismatch'),
  approval_invalid: refused('approval_invalid'),
  decisions_insufficient: voided,
  operation_unavailable: refused('policy_denied'),
  other_generation_open: refused('precondition_failed'),
  approval_expired: expired,
  deadline_exceeded: overdue,
  expires_too_soon: { kind: 'defer', wake: EXPIRY_MARGIN_MS + epsilon_ms },
  on_hold: { kind: 'defer', wake: defer_min_ms },
  resource_busy: { kind: 'defer', wake: defer_min_ms },
} satisfies Record<Exclude<DispatchRefusal, 'retry_invalid'>, object>);
test.each(REFUSALS)('a dispatch that the database refuses as %s leads on without a send', (code, expected) => {
  expect(DISPATCH_REFUSALS).toContain(code);
  const refusal = { code: code as DispatchRefusal, detail: 'why' };
  expect(moveOf(decideRefusal(loaded(approved), refusal, durations))).toEqual(expected);
});

describe('a recorded retry', () => {
  const DOUBT = { code: 'external_result_uncertain', message: 'timeout' } as const;
  const retrying = (change: Partial<Manifest> = {}): Manifest =>
    approvedRun({
      state: 'needs_reconciliation',
      retry_allowed: true,
      stop_reason: DOUBT,
      attempts: [attempt(approved)],
      ...change,
    });
  /** A retry that is refused is taken back with its reason; the run stays what it was and the reconciler goes on. */
  const takenBack = (decision: DispatchDecision) => {
    expect(moveOf(decision, 'needs_reconciliation')).toEqual({
      on: 'retry_refused',
      to: 'needs_reconciliation',
      code: DOUBT.code,
      wake: stage_lease_ms,
    });
    return decision.kind === 'commit' ? (decision.facts.stop_reason?.message ?? '') : '';
  };
  const fromRow = (run: Manifest, nowMs = START_MS) => decideFromRow(loaded(run, nowMs), workflow, durations);

  test('is dispatched when every check of a first dispatch holds again', () => {
    expect(fromRow(retrying())).toEqual(dispatch);
    const gathered = { kind: 'records', records: records() } as const;
    expect(decideFromFresh(loaded(retrying()), workflow, approvedFacts(approved), gathered, durations)).toEqual(
      dispatch,
    );
  });

  const withAction = (change: Partial<typeof action>) => ({ action: { ...action, ...change } });
  test.each<[string, Partial<Manifest>, number, RegExp]>([
    ['the run’s deadline has passed', {}, epochMs(approved.deadlines.run), /deadline of the whole run/],
    ['the approval has expired', {}, expiresMs, /retry was refused: .*expir/i],
    [
      'the stored bytes were changed',
      withAction({ canonical: '{}' }),
      START_MS,
      /retry was refused: The stored action/,
    ],
    ['another action was fixed', { action_revision: 99 as Revision }, START_MS, /for another action/],
    [
      'a rejection came',
      { approval: decided(approved, 'prn_bob', 'reject').approval },
      START_MS,
      /retry was refused: The recorded decisions do not suffice for this action. An approver rejected/,
    ],
    [
      'an approver was lost',
      { approval: { ...approval, decisions: [] }, decisions_sufficient: false },
      START_MS,
      /approvals no longer suffice/,
    ],
    ['the operation is no longer allowed', { allowed_operations: ['read_order'] }, START_MS, /polic/i],
    [
      'the resource is not the action’s',
      { resource_key: 'shop_north/sandbox-payments/pay_1' },
      START_MS,
      /resource_key/,
    ],
  ])('is taken back when %s', (_, change, nowMs, why) => {
    expect(takenBack(fromRow(retrying(change), nowMs))).toMatch(why);
  });

  test('only waits while its workflow is not installed here: another worker may have it', () => {
    expect(moveOf(decideFromRow(loaded(retrying()), undefined, durations))).toEqual(defers);
    expect(moveOf(fromRow(retrying({ connector_version: '2' })))).toEqual(defers);
    expect(takenBack(fromRow(retrying(), expiresMs))).toMatch(/expir/i);
  });

  test('too close to the expiry waits for it, and is taken back then', () => {
    const edge = expiresMs - epsilon_ms - EXPIRY_MARGIN_MS;
    expect(fromRow(retrying(), edge - 1)).toEqual(dispatch);
    expect(moveOf(fromRow(retrying(), edge))).toEqual({ kind: 'defer', wake: epsilon_ms + EXPIRY_MARGIN_MS });
  });

  test.each<[string, Gathered, ReturnType<typeof approvedFacts>, RegExp]>([
    ['may not read', { kind: 'stop', code: 'operation_unavailable', detail: 'no' }, approvedFacts(approved), /no/],
    [
      'finds the request closed',
      { kind: 'records', records: records({ request: { status: 'closed' } }) },
      approvedFacts(approved),
      /retry was refused/,
    ],
    [
      'finds other evidence: nobody approves it anew while the first send is in doubt',
      { kind: 'records', records: records({ payment: { refundable_amount_minor: 4300 } }) },
      approvedFacts(approved),
      /evidence changed/,
    ],
    ['finds the evidence erased', { kind: 'records', records: records() }, undefined, /erased/],
  ])('is taken back when the fresh read %s', (_, gathered, basis, why) => {
    expect(takenBack(decideFromFresh(loaded(retrying()), workflow, basis, gathered, durations))).toMatch(why);
  });

  test('waits when the fresh read fails: nothing was concluded', () => {
    const failed = { kind: 'read_failed', operation: 'read_order', reason: 'timeout' } as const;
    expect(moveOf(decideFromFresh(loaded(retrying()), workflow, approvedFacts(approved), failed, durations))).toEqual(
      defers,
    );
  });

  test.each([...REFUSALS.map(([code]) => code as DispatchRefusal), 'retry_invalid' as const])(
    'that the database refuses as %s is taken back, unless it need only wait',
    (code) => {
      const decision = decideRefusal(loaded(retrying()), { code, detail: 'why' }, durations);
      if (code === 'on_hold' || code === 'resource_busy') expect(moveOf(decision)).toEqual(defers);
      else if (code === 'expires_too_soon')
        expect(moveOf(decision)).toEqual({ kind: 'defer', wake: EXPIRY_MARGIN_MS + epsilon_ms });
      else expect(takenBack(decision)).toContain('The retry was refused: ');
    },
  );

  test('is taken back under the reason for which the run is in doubt: why it stopped has not changed', () => {
    const late = retrying({ stop_reason: { code: 'verification_not_found', message: 'm' } });
    const decision = decideRefusal(loaded(late), { code: 'retry_invalid', detail: 'no_key' }, durations);
    expect(decision).toMatchObject({
      facts: { stop_reason: { code: 'verification_not_found', message: expect.stringContaining('no_key') } },
    });
  });
});

describe('an outcome', () => {
  const priorAttempts = (...statuses: Attempt['status'][]) =>
    statuses.map((status, index) => attempt(approved, { n: index + 1, status }));
  const HISTORIES: [string, Attempt[]][] = [
    ['of the first attempt', []],
    ['after attempts of which nothing was sent', priorAttempts('not_sent', 'not_sent')],
    ['after an uncertain attempt', priorAttempts('uncertain')],
    ['after an uncertain attempt and one of which nothing was sent', priorAttempts('uncertain', 'not_sent')],
    ['after an attempt that has not been closed', priorAttempts('started')],
  ];
  const OUTCOMES: Record<Outcome['class'], Outcome> = {
    applied: { class: 'applied', effect: effect(), replayed: false },
    rejected: { class: 'rejected', code: 'charge_disputed', retryable: 'new-approval' },
    not_sent: { class: 'not_sent', reason: 'late' },
    retry_safe: { class: 'retry_safe', reason: 'rate_limited' },
    uncertain: { class: 'uncertain', reason: 'timeout' },
  };
  const VISIBILITY_MS = 300;
  // Looked at again once the effect could no longer begin unseen (protocol rule 25).
  const settled = durations.call_deadline_ms + settleMs(durations, VISIBILITY_MS);
  const clear = { on: 'effect_rejected', to: 'failed', status: 'rejected', code: 'effect_rejected', wake: settled };
  const inDoubt = {
    on: 'outcome_uncertain',
    to: 'needs_reconciliation',
    status: 'uncertain',
    code: 'external_result_uncertain',
    wake: stage_lease_ms,
  };
  const EXPECTED: Record<Outcome['class'], (earlier: Attempt[]) => object> = {
    applied: () => ({
      on: 'effect_accepted',
      to: 'verifying',
      status: 'succeeded',
      code: undefined,
      wake: stage_lease_ms,
    }),
    // A clear answer speaks about its own attempt only: an earlier one may have had the effect.
    rejected: (earlier) => (earlier.some((one) => one.status !== 'not_sent') ? inDoubt : clear),
    not_sent: () => ({
      on: 'nothing_sent',
      to: 'needs_reconciliation',
      status: 'not_sent',
      code: 'not_sent',
      wake: stage_lease_ms,
    }),
    retry_safe: () => inDoubt,
    uncertain: () => inDoubt,
  };
  const rows = Object.values(OUTCOMES).flatMap((outcome) =>
    HISTORIES.map(([when, earlier]) => ({ outcome, class: outcome.class, when, earlier })),
  );

  test.each(rows)('$class $when', ({ outcome, earlier }) => {
    const decision = decideOutcome('att_9', earlier, outcome, durations, VISIBILITY_MS);
    const rule = transitionRule('executing', decision.on);
    expect(rule?.by).toContain('executor');
    for (const fact of Object.keys(decision.facts)) expect(rule?.facts).toContain(fact);
    const { attempt_outcome, stop_reason } = decision.facts;
    expect({
      on: decision.on,
      to: rule?.to,
      status: attempt_outcome?.status,
      code: stop_reason?.code,
      wake: decision.wake_in_ms,
    }).toEqual(EXPECTED[outcome.class](earlier));
    expect(attempt_outcome).toMatchObject({ attempt_id: 'att_9', response: outcome });
    expect(decision.applied).toBe(outcome.class === 'applied');
  });

  test('keeps the provider’s own name of an effect, and invents none', () => {
    const nameOf = (outcome: Outcome) =>
      decideOutcome('att_9', [], outcome, durations, VISIBILITY_MS).facts.attempt_outcome?.provider_ref;
    expect(nameOf(OUTCOMES.applied)).toBe('re_1');
    for (const outcome of [OUTCOMES.rejected, OUTCOMES.not_sent, OUTCOMES.retry_safe, OUTCOMES.uncertain])
      expect(nameOf(outcome)).toBeNull();
  });

  test('an accepted effect whose status is failed, pending or unknown is verified like any other', () => {
    for (const settlement of ['failed', 'pending', 'unrecognised'] as const)
      expect(
        decideOutcome(
          'att_9',
          [],
          { class: 'applied', effect: effect({ settlement }), replayed: 'unknown' },
          durations,
          VISIBILITY_MS,
        ).on,
      ).toBe('effect_accepted');
  });
});
