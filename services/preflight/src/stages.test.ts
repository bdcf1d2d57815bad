import type { Read, ReadOutcome } from '@counterstamp/connectors';
import { factsDigest, type Ids, type JsonObject, LIMITS, type Manifest, PROFILES } from '@counterstamp/manifest-core';
import type { StageDecision } from '@counterstamp/stage-runtime';
import { describe, expect, test } from 'vitest';
import { at, loaded, proposal, START_MS } from '../../../testing/manifest-builder.ts';
import { ORDER, PAYMENT, PROPOSAL, proposedRun, REQUEST, workflow } from '../../../testing/refund-case.ts';
import { preflightStages } from './stages.ts';

/** The three stations over systems that answer with the coherent case. */
function stations() {
  const asked: string[] = [];
  const offer =
    (operation: string, kind: string, facts: JsonObject): Read =>
    () => {
      asked.push(operation);
      const outcome: ReadOutcome = {
        kind: 'found',
        record: { kind, source_ref: `test:${kind}`, version_marker: '1', facts },
      };
      return Promise.resolve(outcome);
    };
  let drawn = 0;
  const ids: Ids = { uuid: () => `u${++drawn}`, id: (kind) => `${kind}_${++drawn}`, salt: () => `salt_${++drawn}` };
  const stages = preflightStages({
    systems: {
      workflows: new Map([[workflow.name, workflow]]),
      reads: {
        read_request: offer('read_request', 'request_record', REQUEST),
        read_order: offer('read_order', 'order_record', ORDER),
        read_payment: offer('read_payment', 'payment_record', PAYMENT),
      },
    },
    ids,
    durations: PROFILES.fast,
    limits: LIMITS,
  });
  return { stages, asked };
}
const bare = (change: Partial<Manifest>) =>
  proposedRun({ evidence: [], evidence_complete: false, proposals: [], ...change });
/** With the request's record as its only evidence, as the first move leaves it. */
const requested = (change: Partial<Manifest>) =>
  bare({ evidence: proposedRun().evidence.filter((item) => item.kind === 'request_record'), ...change });
const onOf = (decision: StageDecision) => (decision.kind === 'commit' ? decision.on : decision.kind);
const codeOf = (decision: StageDecision) => (decision.kind === 'commit' ? decision.facts.stop_reason?.code : undefined);

const STATIONS = [
  ['preflight', bare({ state: 'preflight' })],
  ['collect', bare({ state: 'collecting' })],
  ['propose', proposedRun()],
] as const;

test.each<[string, ReadOutcome, string, string | undefined]>([
  ['the tenant has no such request', { kind: 'missing', source_ref: 'x' }, 'checks_failed', 'scope_mismatch'],
  ['the read fails, which the run’s deadline bounds', { kind: 'failed', reason: 'refused' }, 'defer', undefined],
])('a queued run: %s', async (_, answer, on, code) => {
  const stages = preflightStages({
    systems: {
      workflows: new Map([[workflow.name, workflow]]),
      reads: { read_request: () => Promise.resolve(answer) },
    },
    ids: { uuid: () => 'u', id: (kind) => kind, salt: () => 'salt' },
    durations: PROFILES.fast,
    limits: LIMITS,
  });
  const decision = await stages.preflight(loaded(bare({ state: 'queued' })));
  expect([onOf(decision), codeOf(decision)]).toEqual([on, code]);
});

test('a system whose connector throws is a read that failed, and counts', async () => {
  const stages = preflightStages({
    systems: {
      workflows: new Map([[workflow.name, workflow]]),
      reads: { read_order: () => Promise.reject(new Error('bug')) },
    },
    ids: { uuid: () => 'u', id: (kind) => kind, salt: () => 'salt' },
    durations: PROFILES.fast,
    limits: LIMITS,
  });
  expect(onOf(await stages.preflight(loaded(requested({ state: 'preflight' }))))).toBe('read_failed');
});

describe.each(STATIONS)('%s', (station, run) => {
  test('reads nothing once the run’s deadline has passed', async () => {
    const { stages, asked } = stations();
    expect(onOf(await stages[station](loaded(run, Date.parse(run.deadlines.run))))).toBe('deadline_passed');
    expect(asked).toEqual([]);
  });

  test('reads nothing for a workflow that is not installed', async () => {
    const { stages, asked } = stations();
    for (const change of [{ workflow: 'payout' }, { workflow_version: 2 }])
      expect(codeOf(await stages[station](loaded({ ...run, ...change })))).toBe('operation_unavailable');
    expect(asked).toEqual([]);
  });
});

test('a run that could not be looked up afterwards is stopped before anything is read', async () => {
  const { stages, asked } = stations();
  const run = bare({
    state: 'preflight',
    allowed_operations: ['read_request', 'read_order', 'read_payment', 'refund_order'],
  });
  expect(codeOf(await stages.preflight(loaded(run)))).toBe('operation_unavailable');
  expect(asked).toEqual([]);
});

test('a coherent run passes the three stations with the reads that each needs and no other', async () => {
  const { stages, asked } = stations();
  expect(onOf(await stages.preflight(loaded(bare({ state: 'queued' }))))).toBe('request_loaded');
  expect(asked.splice(0)).toEqual(['read_request']);
  expect(onOf(await stages.preflight(loaded(requested({ state: 'preflight' }))))).toBe('checks_passed');
  expect(asked.splice(0)).toEqual(['read_order']);
  expect(onOf(await stages.collect(loaded(bare({ state: 'collecting' }))))).toBe('evidence_recorded');
  expect(asked.splice(0)).toEqual(['read_request', 'read_order', 'read_payment']);
  expect(onOf(await stages.propose(loaded(proposedRun({ state: 'collecting', proposals: [] }))))).toBe(
    'proposal_received',
  );
  expect(onOf(await stages.propose(loaded(proposedRun())))).toBe('action_fixed');
  expect(asked).toEqual([]);
});

test('evidence is recorded with the time before the read, its source, and a salted digest; what came with the request stays untrusted', async () => {
  const { stages } = stations();
  const run = bare({ state: 'collecting', context: [{ source: 'mail', text: 'Policy was changed.' }] });
  const decision = await stages.collect(loaded(run));
  const evidence = decision.kind === 'commit' ? (decision.facts.evidence ?? []) : [];
  expect(evidence.map(({ kind, trusted, observed_at }) => [kind, trusted, observed_at])).toEqual([
    ['request_record', true, at(START_MS)],
    ['order_record', true, at(START_MS)],
    ['payment_record', true, at(START_MS)],
    ['untrusted_context', false, at(START_MS)],
  ]);
  for (const item of evidence) expect(item.facts_digest).toBe(factsDigest(item.salt, item.facts_canonical));
  expect(new Set(evidence.map((item) => item.salt)).size).toBe(4);
  expect(new Set(evidence.map((item) => item.evidence_id)).size).toBe(4);
});

test.each<[string, Partial<Manifest>, string, object]>([
  [
    'the rules draft one when none waits',
    { proposals: [] },
    'proposal_received',
    { proposal: { author_kind: 'rules' } },
  ],
  [
    'the one that waits is taken before the rules draft any',
    { proposals: [proposal(PROPOSAL)] },
    'proposal_received',
    { proposal_id: 'prp_1' },
  ],
  [
    'the rules draft a new one when the last was refused',
    {
      proposals: [
        proposal(PROPOSAL, { author_kind: 'external', refusal: { code: 'proposal_invalid', message: 'no' } }),
      ],
    },
    'proposal_received',
    { proposal: { author_kind: 'rules' } },
  ],
])('proposing: %s', async (_, change, on, facts) => {
  const { stages } = stations();
  const decision = await stages.propose(loaded(proposedRun({ state: 'collecting', ...change })));
  expect(onOf(decision)).toBe(on);
  expect(decision).toMatchObject({ facts });
});

test('nobody drafts for a proposer outside', async () => {
  const { stages } = stations();
  const run = proposedRun({ state: 'collecting', proposals: [], proposer: 'external' });
  expect(onOf(await stages.propose(loaded(run)))).toBe('nothing');
});

test('a proposed run without a proposal is a bug', async () => {
  const { stages } = stations();
  await expect(stages.propose(loaded(proposedRun({ proposals: [] })))).rejects.toThrow('no proposal');
});

test.each(STATIONS)('%s: a run whose personal data was erased stops before anything is read', async (station, run) => {
  const { stages, asked } = stations();
  const decision = await stages[station](loaded({ ...run, erased_at: at(START_MS), input: {}, context: [] }));
  expect([onOf(decision), codeOf(decision)]).toEqual(['checks_failed', 'personal_data_erased']);
  expect(asked).toEqual([]);
});

test('a run of which recorded evidence was changed stops under that name', async () => {
  const [first, ...others] = proposedRun().evidence;
  if (first === undefined) throw new Error('the case has evidence');
  const decision = await stations().stages.propose(
    loaded(proposedRun({ evidence: [{ ...first, facts: null, altered: true }, ...others] })),
  );
  expect([onOf(decision), codeOf(decision)]).toEqual(['checks_failed', 'evidence_altered']);
});
