import {
  canonicalJson,
  type Digest,
  digestOf,
  type EvidenceDraft,
  epochMs,
  evidenceSetDigest,
  type JsonObject,
  LIMITS,
  type Manifest,
  PROFILES,
  type ProposalDraft,
  type StopReasonCode,
  transitionRule,
} from '@counterstamp/manifest-core';
import type { StageDecision } from '@counterstamp/stage-runtime';
import type { ProposalVerdict, Verdict } from '@counterstamp/workflows';
import { describe, expect, test } from 'vitest';
import { counted, loaded, proposal, START_MS } from '../../../testing/manifest-builder.ts';
import {
  ACTION,
  type Facts,
  INPUT,
  PROPOSAL,
  proposedRun,
  recorded,
  records,
  workflow,
} from '../../../testing/refund-case.ts';
import {
  decideAction,
  decideDeadline,
  decideEvidence,
  decideOperations,
  decideProposal,
  decideScope,
} from './decide.ts';

const terms = { durations: PROFILES.fast, limits: LIMITS };
const { stage_lease_ms, look_min_ms, proposal_wait_ms, approval_life_ms } = terms.durations;

/** The move, its reason and when the fleet looks again; every move must be the preflight service's to make from that state. */
function moveOf(run: Manifest, decision: StageDecision) {
  if (decision.kind !== 'commit') return { kind: decision.kind };
  const rule = transitionRule(run.state, decision.on);
  expect(rule?.by).toContain('preflight');
  for (const fact of Object.keys(decision.facts)) expect(rule?.facts).toContain(fact);
  return { on: decision.on, to: rule?.to, code: decision.facts.stop_reason?.code, wake: decision.wake_in_ms };
}
const stopped = (code: StopReasonCode) => ({ on: 'checks_failed', to: 'failed', code, wake: null });

describe('a run that may not go on', () => {
  test.each([
    ['a millisecond before its deadline still has time', -1, undefined],
    ['at its deadline ends', 0, 'deadline_exceeded'],
    ['after its deadline ends', 60_000, 'deadline_exceeded'],
  ])('%s', (_, offsetMs, code) => {
    const run = proposedRun({ state: 'collecting' });
    const decision = decideDeadline(loaded(run, epochMs(run.deadlines.run) + offsetMs));
    expect(decision && moveOf(run, decision)).toEqual(
      code && { on: 'deadline_passed', to: 'failed', code, wake: null },
    );
  });

  test.each(Object.keys(workflow.operations))(
    'lacks the operation %s and stops before anything is read',
    (operation) => {
      const all = proposedRun({ state: 'preflight' });
      const run = { ...all, allowed_operations: all.allowed_operations.filter((name) => name !== operation) };
      const decision = decideOperations(run, workflow);
      expect(decision && moveOf(run, decision)).toEqual(stopped('operation_unavailable'));
      expect(JSON.stringify(decision)).toContain(operation);
    },
  );

  test('has every operation and is not stopped', () => {
    expect(decideOperations(proposedRun({ state: 'preflight' }), workflow)).toBeUndefined();
  });
});

describe('preflight', () => {
  const run = proposedRun({ state: 'preflight', evidence: [], proposals: [] });
  const scope = (change: Facts, input = INPUT as Manifest['input']) =>
    moveOf(
      run,
      decideScope(
        run,
        { kind: 'records', records: records(change) },
        (found) => workflow.checkScope({ ...run, input }, found),
        terms,
      ),
    );

  test.each<[string, Facts, StopReasonCode]>([
    ['the tenant has no such request', { request: null }, 'scope_mismatch'],
    ['the request says another tenant', { request: { tenant_id: 'shop_south' } }, 'scope_mismatch'],
    ['the request is about another order', { request: { order_id: 'order_1' } }, 'scope_mismatch'],
    ['there is no such order', { order: null }, 'scope_mismatch'],
    ['the order is another tenant’s', { order: { tenant_id: 'shop_south' } }, 'scope_mismatch'],
    ['the request is closed', { request: { status: 'closed' } }, 'request_closed'],
    ['the request is in another currency', { request: { currency: 'EUR' } }, 'invalid_input'],
    ['less was requested', { request: { requested_amount_minor: 4199 } }, 'invalid_input'],
  ])('stops when %s', (_, change, code) => {
    expect(scope(change)).toEqual(stopped(code));
  });

  test.each<[string, Facts]>([
    ['the record agrees', {}],
    ['more was requested than the run asks for', { request: { requested_amount_minor: 9_000 } }],
  ])('goes on when %s', (_, change) => {
    expect(scope(change)).toEqual({ on: 'checks_passed', to: 'collecting', code: undefined, wake: stage_lease_ms });
  });

  test('stops when a read may not be made', () => {
    const decision = decideScope(
      run,
      { kind: 'stop', code: 'operation_unavailable', detail: 'no' },
      () => ({ kind: 'pass' }),
      terms,
    );
    expect(moveOf(run, decision)).toEqual(stopped('operation_unavailable'));
  });
});

describe.each(['preflight', 'collecting'] as const)('a read that failed in %s', (state) => {
  const failure = { kind: 'read_failed', operation: 'read_order', reason: 'timeout' } as const;
  const decide: (run: Manifest) => StageDecision =
    state === 'preflight'
      ? (run) => decideScope(run, failure, () => ({ kind: 'pass' }), terms)
      : (run) => decideEvidence(run, failure, undefined, [], terms);

  test.each([
    ['the first time waits', 0, { on: 'read_failed', to: state, code: undefined, wake: look_min_ms }],
    [
      'the second time waits twice as long',
      1,
      { on: 'read_failed', to: state, code: undefined, wake: look_min_ms * 2 },
    ],
    ['the third time ends the run', 2, stopped('attempt_limit')],
  ])('%s', (_, read_failures, expected) => {
    const run = counted(proposedRun({ state }), { read_failures });
    expect(moveOf(run, decide(run))).toEqual(expected);
  });

  test('says which read it was and why, and records nothing else', () => {
    const decision = decide(proposedRun({ state }));
    expect(decision).toMatchObject({ facts: { read_failure: { operation: 'read_order', reason: 'timeout' } } });
    expect(decision.kind === 'commit' && Object.keys(decision.facts)).toEqual(['read_failure']);
  });

  test('is counted too when only the check could tell', () => {
    const run = proposedRun({ state });
    const verdict: Verdict = failure;
    const gathered = { kind: 'records', records: records() } as const;
    const decision =
      state === 'preflight'
        ? decideScope(run, gathered, () => verdict, terms)
        : decideEvidence(run, gathered, verdict, [], terms);
    expect(moveOf(run, decision)).toMatchObject({ on: 'read_failed' });
  });
});

describe('collecting', () => {
  const run = proposedRun({ state: 'collecting', evidence: [], evidence_complete: false, proposals: [] });
  const draft: EvidenceDraft = {
    evidence_id: 'evd_1',
    kind: 'order_record',
    source_ref: 'shop:/x',
    observed_at: run.created_at,
    version_marker: '1',
    trusted: true,
    salt: '00',
    facts_canonical: '{}',
    facts_digest: `sha256:${'0'.repeat(64)}` as Digest,
  };
  const collect = (change: Facts, on: Manifest = run) =>
    decideEvidence(
      on,
      { kind: 'records', records: records(change) },
      workflow.checkEvidence(on, records(change)),
      [draft],
      terms,
    );

  test.each<[string, Facts]>([
    ['the request is gone', { request: null }],
    ['the order is gone', { order: null }],
    ['the request was closed meanwhile', { request: { status: 'closed' } }],
    ['the request changed its tenant', { request: { tenant_id: 'shop_south' } }],
    ['the order changed its tenant', { order: { tenant_id: 'shop_south' } }],
    ['the request turned to another order', { request: { order_id: 'order_1' } }],
    ['another order was answered', { order: { order_id: 'order_1' } }],
    ['the request was lowered', { request: { requested_amount_minor: 4199 } }],
    ['the request is in another currency than its order', { request: { currency: 'EUR' } }],
    [
      'order and payment are in another currency than the run',
      { order: { currency: 'EUR' }, payment: { currency: 'EUR' } },
    ],
    ['the provider does not know the payment', { payment: null }],
    ['the provider answered another payment', { payment: { payment_id: 'pay_1' } }],
    ['shop and provider disagree about the currency', { payment: { currency: 'EUR' } }],
    ['shop and provider disagree about what was captured', { payment: { captured_amount_minor: 4100 } }],
  ])('stops as a conflict when %s, and keeps what was read', (_, change) => {
    const decision = collect(change);
    expect(moveOf(run, decision)).toEqual(stopped('evidence_conflict'));
    expect(decision).toMatchObject({ facts: { evidence: [draft] } });
  });

  test.each<[string, Partial<Manifest>, number]>([
    ['at once for the rules', {}, stage_lease_ms],
    [
      'at once when a proposal came with the request',
      { proposer: 'external', proposals: [proposal(PROPOSAL)] },
      stage_lease_ms,
    ],
    ['after the proposal’s wait when it comes from outside', { proposer: 'external' }, proposal_wait_ms],
    [
      'after the wait again when the last one was refused',
      {
        proposer: 'external',
        proposals: [proposal(PROPOSAL, { refusal: { code: 'proposal_invalid', message: 'no' } })],
      },
      proposal_wait_ms,
    ],
  ])('completes the evidence and looks again %s', (_, change, wake) => {
    const on = { ...run, ...change };
    const decision = collect({}, on);
    expect(moveOf(on, decision)).toEqual({ on: 'evidence_recorded', to: 'collecting', code: undefined, wake });
    expect(decision).toMatchObject({ facts: { evidence: [draft], evidence_complete: true } });
  });

  test('stops when a read may not be made', () => {
    const decision = decideEvidence(
      run,
      { kind: 'stop', code: 'operation_unavailable', detail: 'no' },
      undefined,
      [],
      terms,
    );
    expect(moveOf(run, decision)).toEqual(stopped('operation_unavailable'));
  });
});

describe('the proposal', () => {
  const waiting = proposedRun({ state: 'collecting', proposals: [], proposer: 'external' });
  const drafted: ProposalDraft = {
    proposal_id: 'prp_2',
    author: 'rules',
    author_kind: 'rules',
    body_canonical: '{}',
    body_digest: digestOf('cs.proposal.v1', '{}'),
  };

  test('that waits is taken before any other', () => {
    const run = { ...waiting, proposals: [proposal(PROPOSAL)] };
    const decision = decideProposal(loaded(run), workflow, drafted, terms);
    expect(moveOf(run, decision)).toEqual({
      on: 'proposal_received',
      to: 'proposed',
      code: undefined,
      wake: stage_lease_ms,
    });
    expect(decision).toMatchObject({ facts: { proposal_id: 'prp_1' } });
  });

  test('that the rules make is stored like any other', () => {
    const decision = decideProposal(loaded(waiting), workflow, drafted, terms);
    expect(moveOf(waiting, decision)).toMatchObject({ on: 'proposal_received', to: 'proposed' });
    expect(decision).toMatchObject({ facts: { proposal: drafted } });
  });

  test.each<[string, number, number, object]>([
    ['may still come a millisecond before its wait ends', proposal_wait_ms - 1, 0, { kind: 'nothing' }],
    [
      'is asked again when its wait has ended',
      proposal_wait_ms,
      0,
      { on: 'proposal_asked_again', to: 'collecting', code: undefined, wake: proposal_wait_ms },
    ],
    [
      'is asked again while a cycle is left',
      proposal_wait_ms,
      1,
      { on: 'proposal_asked_again', to: 'collecting', code: undefined, wake: proposal_wait_ms },
    ],
    ['ends the run when no cycle is left', proposal_wait_ms, 2, stopped('attempt_limit')],
    ['is not given up before its last wait ends', proposal_wait_ms - 1, 2, { kind: 'nothing' }],
  ])('from outside %s', (_, afterMs, proposal_cycles, expected) => {
    const run = counted(waiting, { proposal_cycles });
    expect(moveOf(run, decideProposal(loaded(run, START_MS + afterMs), workflow, undefined, terms))).toEqual(expected);
  });
});

describe('the check of a proposal', () => {
  const drawn = { approval_id: 'apr_1', nonce: 'ab'.repeat(16) };
  const refusal = { kind: 'refused', code: 'proposal_invalid', message: 'amount_minor is 9' } as const;
  const decide = (run: Manifest, verdict: ProposalVerdict, by = proposal(PROPOSAL), nowMs = START_MS) =>
    decideAction(loaded(run, nowMs), by, verdict, workflow, drawn, terms);

  test.each([
    [
      'an external one that is refused asks for another',
      'external',
      0,
      { on: 'proposal_refused', to: 'collecting', code: undefined, wake: proposal_wait_ms },
    ],
    [
      'a model’s that is refused asks for another',
      'model',
      1,
      { on: 'proposal_refused', to: 'collecting', code: undefined, wake: proposal_wait_ms },
    ],
    ['an external one in the last cycle ends the run', 'external', 2, stopped('proposal_invalid')],
    [
      'one of the rules, which would only repeat themselves, ends the run in the first cycle',
      'rules',
      0,
      stopped('proposal_invalid'),
    ],
  ] as const)('%s', (_, author_kind, proposal_cycles, expected) => {
    const run = counted(proposedRun(), { proposal_cycles });
    const decision = decide(run, refusal, proposal(PROPOSAL, { author_kind }));
    expect(moveOf(run, decision)).toEqual(expected);
    expect(decision).toMatchObject({
      facts: { proposal_refusal: { proposal_id: 'prp_1', code: 'proposal_invalid', message: 'amount_minor is 9' } },
    });
  });

  test.each(['policy_denied', 'evidence_conflict'] as const)(
    'one that is stopped by %s ends the run whatever cycles are left',
    (code) => {
      const run = proposedRun();
      const decision = decide(
        run,
        { kind: 'stop', code, detail: 'no' },
        proposal(PROPOSAL, { author_kind: 'external' }),
      );
      expect(moveOf(run, decision)).toEqual(stopped(code));
      expect(decision).toMatchObject({ facts: { proposal_refusal: { proposal_id: 'prp_1', code } } });
    },
  );

  const accepted: ProposalVerdict = {
    kind: 'accepted',
    action: ACTION,
    terms: {
      policy: 'refund',
      policy_version: 2,
      policy_rule: 'two_people_above_50000',
      approvals_required: 2,
      groups_required: { finance: 1 },
      method: 'passkey',
      break_glass: true,
    },
  };
  function requestOf(run: Manifest, nowMs = START_MS) {
    const decision = decide(run, accepted, proposal(PROPOSAL), nowMs);
    expect(moveOf(run, decision)).toMatchObject({ on: 'action_fixed', to: 'awaiting_approval' });
    if (
      decision.kind !== 'commit' ||
      decision.facts.approval_request === undefined ||
      decision.facts.action === undefined
    )
      throw new Error('nothing was asked');
    const { action, approval_request } = decision.facts;
    return { action, approval_request, bound: JSON.parse(approval_request.canonical) as JsonObject };
  }

  test('one that is accepted fixes the canonical bytes and binds everything that was approved with them', () => {
    const run = proposedRun();
    const { action, approval_request, bound } = requestOf(run);
    expect(action).toEqual({
      canonical: canonicalJson(ACTION),
      digest: digestOf('cs.action.v1', canonicalJson(ACTION)),
    });
    expect(bound).toEqual({
      profile: 'cs.approval.v1',
      approval_id: 'apr_1',
      run_id: run.run_id,
      tenant_id: 'shop_north',
      action_digest: action.digest,
      action_revision: run.revision + 1,
      evidence_set_digest: evidenceSetDigest(recorded()),
      display_digest: digestOf('cs.display.v1', approval_request.display_canonical),
      policy: 'refund',
      policy_version: 2,
      policy_rule: 'two_people_above_50000',
      approvals_required: 2,
      groups_required: { finance: 1 },
      method: 'passkey',
      break_glass: true,
      workflow: 'refund',
      workflow_version: 1,
      connector: 'sandbox-payments',
      connector_version: '1',
      expires_at: new Date(START_MS + approval_life_ms).toISOString(),
      nonce: drawn.nonce,
    });
    expect(approval_request.resource_key).toBe('shop_north/sandbox-payments/pay_913');
  });

  test('the approval’s digest can be recomputed from its canonical text, and the display’s from the action alone', () => {
    const { action, approval_request } = requestOf(proposedRun());
    expect(canonicalJson(JSON.parse(approval_request.canonical))).toBe(approval_request.canonical);
    expect(digestOf('cs.approval.v1', approval_request.canonical)).toBe(approval_request.approval_digest);
    expect(canonicalJson(workflow.display(JSON.parse(action.canonical)))).toBe(approval_request.display_canonical);
  });

  test('every bound fact moves the approval’s digest', () => {
    const run = proposedRun();
    const { approval_request, bound } = requestOf(run);
    const changes: Manifest[] = [
      { ...run, tenant_id: 'shop_south' },
      { ...run, connector_version: '2' },
      { ...run, revision: (run.revision + 1) as Manifest['revision'] },
      { ...run, evidence: recorded({ payment: { refundable_amount_minor: 4300 } }) },
    ];
    for (const change of changes)
      expect(requestOf(change).approval_request.approval_digest).not.toBe(approval_request.approval_digest);
    for (const name of Object.keys(bound))
      expect(digestOf('cs.approval.v1', canonicalJson({ ...bound, [name]: 'x' }))).not.toBe(
        approval_request.approval_digest,
      );
  });

  test.each<[string, Partial<Manifest>, number]>([
    ['the installation’s life', {}, approval_life_ms],
    ['the request’s shorter life', { approval_life_ms: 5_000 }, 5_000],
    ['not the request’s longer life', { approval_life_ms: approval_life_ms * 2 }, approval_life_ms],
    [
      'the rest of the run’s life',
      { deadlines: { run: new Date(START_MS + 9_000).toISOString(), approval: null } },
      9_000,
    ],
    [
      'the shorter of the request’s life and the run’s rest',
      { approval_life_ms: 4_000, deadlines: { run: new Date(START_MS + 9_000).toISOString(), approval: null } },
      4_000,
    ],
  ])('the approval lives %s', (_, change, lifeMs) => {
    const { bound } = requestOf(proposedRun(change));
    expect(bound.expires_at).toBe(new Date(START_MS + lifeMs).toISOString());
  });
});
