import { CancelBody, type RunStanding } from '@counterstamp/api-contract';
import { parseWith, stopReason } from '@counterstamp/manifest-core';
import { inRunSpan, moveAttributes } from '@counterstamp/telemetry';
import { type Answer, answered, type Call, isBeforeDispatch, runIdOf, SWAPS_MAX } from './command.ts';
import { refused, refusedBy } from './problem.ts';
import { readJsonBody } from './raw-body.ts';

/** Stops a run before anything is sent. */
export async function cancelRun(call: Call): Promise<Answer<RunStanding>> {
  const { deps, who } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const { run_id } = id;
  const json = await readJsonBody(call.request, {});
  if (!json.ok) return refusedBy(json.refusal);
  const body = parseWith(CancelBody, json.value);
  if (!body.ok) return refusedBy(body.refusal);

  for (let swap = 0; swap < SWAPS_MAX; swap++) {
    const loaded = await deps.store.load(who.tenant_id, run_id);
    if (loaded === undefined) return refused('run_not_found');
    const { state, revision } = loaded.manifest;
    if (!isBeforeDispatch(state)) return refused('not_cancellable', '', { detail: `the run is ${state} already` });
    const facts = { stop_reason: stopReason('cancelled', body.value.reason) };
    const move = moveAttributes({ from: state, to: 'rejected', trigger: 'cancelled', facts });
    const outcome = await inRunSpan(loaded.manifest, 'cancel', move, async (span) => {
      const committed = await deps.store.commit(who, {
        run_id,
        expected: revision,
        from: state,
        on: 'cancelled',
        to: 'rejected',
        facts,
        wake_in_ms: null,
      });
      span.set({ result: committed.kind });
      return committed;
    });
    if (outcome.kind === 'committed')
      return answered({ run_id, state: outcome.row.state, revision: outcome.row.revision });
  }
  return refused('stale_revision');
}
