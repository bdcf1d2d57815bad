import type { Instance, RunView } from '@counterstamp/api-contract';
import { type Manifest, STOP_REASONS } from '@counterstamp/manifest-core';
import { expect, test } from 'vitest';
import { asked, at, attempt, evidence, manifest, START_MS } from '../../../../testing/manifest-builder.ts';
import { absenceConditions, doubtList, doubtPage } from './doubt-page.ts';

const approved = asked(manifest(), { operation: 'x' });
const SETTLES = START_MS + 10_000;

function doubt(change: Partial<Manifest> = {}, seen: Partial<RunView> = {}): RunView {
  return {
    ...approved,
    state: 'needs_reconciliation',
    parked_reason: 'effect_not_found',
    stop_reason: { code: 'effect_not_found', message: STOP_REASONS.effect_not_found.message },
    attempts: [attempt(approved)],
    ...change,
    guards: [],
    next: STOP_REASONS.effect_not_found.next,
    as_of: at(SETTLES),
    settles_at: at(SETTLES),
    ...seen,
  };
}

function instance(change: Partial<Instance> = {}): Instance {
  return {
    instance_id: 'ins_1',
    service: 'executor',
    host: 'n7',
    pid: 4711,
    started_at: at(START_MS - 60_000),
    beat_at: at(START_MS),
    lease: 'free',
    ended_at: null,
    ended_by: null,
    credential_rotated: false,
    open_attempts: 0,
    fenced_from: null,
    ...change,
  };
}
const fenced = instance({ ended_at: at(START_MS), ended_by: 'operator', fenced_from: at(SETTLES) });

// Rows: what is shown. Columns: the conditions of an absence.
test.each<[string, RunView, Instance[], [boolean, boolean, boolean]]>([
  ['settled, fenced, nothing said', doubt(), [fenced], [true, true, true]],
  ['a moment before it settles', doubt({}, { as_of: at(SETTLES - 1) }), [fenced], [false, true, false]],
  ['an executor whose end nobody recorded', doubt(), [instance()], [true, true, false]],
  ['an executor that nobody knows', doubt(), [], [true, true, false]],
  ['another executor fenced', doubt(), [{ ...fenced, instance_id: 'ins_2' }], [true, true, false]],
  [
    'an accepted attempt',
    doubt({ attempts: [attempt(approved, { status: 'succeeded' })] }),
    [fenced],
    [true, false, true],
  ],
  ['an acceptance that came late', doubt({ evidence: [evidence('late_effect', {})] }), [fenced], [true, false, true]],
  [
    'a late answer that says nothing',
    doubt({ evidence: [evidence('late_outcome', {})] }),
    [fenced],
    [true, true, true],
  ],
  ['parked because a look found it', doubt({ parked_reason: 'late_effect_found' }), [fenced], [true, false, true]],
  [
    'parked because a look found it different',
    doubt({ parked_reason: 'effect_differs' }),
    [fenced],
    [true, false, true],
  ],
  [
    'no byte ever left',
    doubt({ attempts: [attempt(approved, { status: 'not_sent' })] }, { settles_at: null }),
    [],
    [true, true, true],
  ],
  ['a workflow that the api does not know', doubt({}, { settles_at: null }), [fenced], [false, true, true]],
])('%s', (_, run, instances, expected) => {
  const conditions = absenceConditions(run, instances);
  expect(conditions.map(({ guard }) => guard)).toEqual(['settled', 'no_evidence', 'fenced']);
  expect(conditions.map(({ pass }) => pass)).toEqual(expected);
});

test('a parked run’s page has the time of a look from now on and commands that can be copied', () => {
  const run = doubt();
  const page = doubtPage(run, [instance()]);
  expect(page).toContain(`as of       ${run.as_of}  (the time to give as --observed-at if you look now)`);
  expect(page).toContain(`settles     since ${run.settles_at}`);
  expect(page).toContain('must also come after the recorded end of each executor that sent + settle');
  const given = `--revision ${run.revision} --evidence "what you saw, and where"`;
  for (const command of [
    `counterstamp verdict ${run.run_id} --landed ${given}`,
    `counterstamp verdict ${run.run_id} --did-not-land --observed-at ${run.as_of} ${given}`,
    `counterstamp verdict ${run.run_id} --landed-differently effect.json ${given}`,
    `counterstamp verdict ${run.run_id} --still-unknown ${given}`,
    `counterstamp reconcile ${run.run_id} --look-again`,
  ])
    expect(page).toContain(`  ${command}\n`.trimEnd());
  expect(page).toMatch(/ins_1 +4711 on n7 +\S+ +free +not recorded +no$/m);
  expect(page).toContain('✗ fail  fenced       still to be fenced: ins_1; end the process');
});

test('a run that is not in doubt any more offers no verdict', () => {
  const page = doubtPage(doubt({ state: 'failed', parked_reason: null }, { settles_at: null }), []);
  expect(page).toContain('nothing: no effect of this run is in doubt');
  expect(page).not.toContain('counterstamp verdict run_');
});

test('the list says of each run why, since when, what next and when it settles', () => {
  const looked = doubt({ parked_reason: null }, { as_of: at(SETTLES - 1) });
  const [first = '', other = ''] = doubtList([doubt(), looked]).split('\n\n');
  expect(first).toMatch(/^run_/);
  expect(first).toMatch(/parked: effect_not_found +request case_2841, workflow refund, revision 6/);
  expect(first).toContain(`since ${at(SETTLES)}`);
  expect(first).toContain(STOP_REASONS.effect_not_found.next);
  expect(first).toContain(`counterstamp reconcile ${looked.run_id}`);
  expect(other).toContain('being looked up, next at ');
  expect(other).toContain(`at ${at(SETTLES)}; an earlier look proves no absence`);
});

test('an effect that a look found is pointed at beside “no evidence”, which speaks of answers alone', () => {
  const seen = { revision: 4 as const, at: at(START_MS), kind: 'found' as const, provider_ref: 're_1', body: {} };
  const evidenceOf = (run: RunView) => absenceConditions(run, [fenced]).find(({ guard }) => guard === 'no_evidence');
  expect(evidenceOf(doubt())?.detail).toBe('nothing says that it was applied');
  expect(evidenceOf(doubt({ observations: [seen as RunView['observations'][number]] }))).toMatchObject({
    pass: true,
    detail: expect.stringContaining('a look found an effect'),
  });
});

test('a run that is not in doubt is asked no conditions', () => {
  expect(doubtPage(doubt(), [fenced])).toContain('Conditions of “it did not land”');
  expect(doubtPage(doubt({ state: 'failed', parked_reason: null }), [fenced])).not.toContain('Conditions of');
});
