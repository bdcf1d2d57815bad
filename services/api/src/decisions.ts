import { DecideBody, type DecidedRun } from '@counterstamp/api-contract';
import { parseWith } from '@counterstamp/manifest-core';
import { type Answer, answered, type Call, runIdOf } from './command.ts';
import { refused, refusedBy } from './problem.ts';
import { readJsonBody } from './raw-body.ts';

/** Where in the body the fault of a result lies, for those that have a place. */
const PATHS: Readonly<Record<string, string>> = { approval_not_found: '/approval_id', self_approval: '/decision' };

/**
 * Records what the authenticated principal decided about exactly what was shown. The database judges under the row lock, so that of
 * many clicks one is recorded and the others learn which.
 */
export async function decide(call: Call): Promise<Answer<DecidedRun>> {
  const { deps, who, hints } = call;
  // A bearer key proves which program calls, not that a person looked; outside development that is not enough.
  if (!deps.development) return refused('approvals_need_development');
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const { run_id } = id;
  const json = await readJsonBody(call.request);
  if (!json.ok) return refusedBy(json.refusal);
  const body = parseWith(DecideBody, json.value);
  if (!body.ok) return refusedBy(body.refusal);

  const { result, decided, row } = await deps.store.decide(
    who,
    {
      run_id,
      ...body.value,
      decision_id: deps.ids.id('decision'),
      method: 'dev_key',
      reason: body.value.reason ?? null,
    },
    deps.durations.stage_lease_ms,
  );
  if (result === 'recorded' || result === 'repeated') {
    const decision = decided.find((one) => one.principal_id === who.principal_id);
    if (row === null || decision === undefined) throw new Error(`a decision was ${result}, but it is not there`);
    if (result === 'recorded') hints.send(row, 'decision.committed.before-hint');
    return answered({ result, run_id, state: row.state, revision: row.revision, decision, decisions: decided });
  }
  return refused(result, PATHS[result] ?? '', {
    // Unknown runs are turned away before anything is written; every other refusal is in the audit already.
    audited: result !== 'run_not_found',
    ...(result === 'already_decided' ? { decisions: decided } : {}),
  });
}
