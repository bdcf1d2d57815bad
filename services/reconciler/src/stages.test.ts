import type { Observation } from '@counterstamp/connectors';
import {
  type AuditEntry,
  type Failpoint,
  type FailpointName,
  LIMITS,
  type Manifest,
  PROFILES,
} from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { attempt, loaded, START_MS } from '../../../testing/manifest-builder.ts';
import { approvedRun, effect, workflow } from '../../../testing/refund-case.ts';
import { metricsOf } from '../../../testing/worker-fakes.ts';
import { reconcilerStages } from './stages.ts';

const absent: Observation = { kind: 'absent', strength: 'strong' };
const unknown: Observation = { kind: 'unknown', reason: 'timeout' };
const found: Observation = { kind: 'found', match: 'exact', effect: effect() };
const doubted: Manifest = {
  ...approvedRun({ state: 'needs_reconciliation' }),
  attempts: [attempt(approvedRun())],
  stop_reason: { code: 'external_result_uncertain', message: 'm' },
};
const failed: Manifest = { ...doubted, state: 'failed', stop_reason: { code: 'effect_rejected', message: 'm' } };
const completed: Manifest = { ...doubted, state: 'completed', stop_reason: null };

/** A reconciler whose connector shows `observation`; what it wrote and the order of its steps. */
function lab(observation: Observation) {
  const audits: AuditEntry[] = [];
  const order: string[] = [];
  const failpoint: Failpoint = {
    reach: (name: FailpointName) => Promise.resolve(void order.push(name)),
    reachSync: () => undefined,
  };
  const connector = {
    ...workflow.connector,
    observe: () => {
      order.push('read');
      return Promise.resolve(observation);
    },
  };
  const { reconcile } = reconcilerStages(
    { workflows: new Map([[workflow.name, { ...workflow, connector }]]), reads: {} },
    {
      store: { audit: (entry) => Promise.resolve(void audits.push(entry)) },
      durations: PROFILES.fast,
      limits: LIMITS,
      failpoint,
      metrics: metricsOf('reconciler'),
    },
  );
  return { audits, order, look: (run: Manifest, nowMs = START_MS) => reconcile(loaded(run, nowMs)) };
}

test('a look lies between the time that it counts from and what is committed on it', async () => {
  const { look, order } = lab(absent);
  await look(doubted);
  expect(order).toEqual(['reconcile.observed-at.before-read', 'read', 'reconcile.read.before-commit']);
});

test('a run in doubt is judged as such and leaves no audit event', async () => {
  const { look, audits } = lab(found);
  expect(await look(doubted)).toMatchObject({ kind: 'commit', on: 'effect_found' });
  expect(audits).toEqual([]);
});

test('a run in doubt whose workflow is not installed is a look that showed nothing', async () => {
  const { look } = lab(found);
  expect(await look({ ...doubted, workflow_version: 99 })).toMatchObject({ kind: 'commit', on: 'look_inconclusive' });
});

describe('a look at a closed run', () => {
  test('that failed and shows no effect is on record with the time that it counts from: a successor may rest on it', async () => {
    const { look, audits } = lab(absent);
    expect(await look(failed)).toMatchObject({ kind: 'defer' });
    expect(audits).toEqual([
      {
        tenant_id: failed.tenant_id,
        principal_id: null,
        run_id: failed.run_id,
        what: 'closure_audit',
        code: 'looked',
        detail: { observed_at: loaded(failed).now },
      },
    ]);
  });
  test('that failed and shows an effect reopens it: no successor may rest on that look', async () => {
    const { look, audits } = lab(found);
    expect(await look(failed)).toMatchObject({ kind: 'commit', on: 'late_effect_found' });
    expect(audits).toEqual([]);
  });
  test('without an answer is none, and says so only when it is given up', async () => {
    const { look, audits } = lab(unknown);
    await look(failed);
    expect(audits).toEqual([]);
    expect(await look(failed, START_MS + 48 * 3_600_000)).toMatchObject({ kind: 'defer', wake_in_ms: null });
    expect(audits).toMatchObject([{ what: 'closure_audit', code: 'given_up' }]);
  });
  test('that completed leaves no audit event', async () => {
    const { look, audits } = lab(found);
    expect(await look(completed)).toMatchObject({ kind: 'defer' });
    expect(audits).toEqual([]);
  });
});
