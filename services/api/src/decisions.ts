import { DecideBody, type DecidedRun } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import type { DecisionCommit } from '@counterstamp/manifest-store';
import { inRunSpan, isTracing, type TracedRun } from '@counterstamp/telemetry';
import { type Answer, answered, type Call, runIdOf } from './command.ts';
import { type Refused, refused } from './problem.ts';
import { readBody } from './raw-body.ts';
import { isFresh } from './sessions.ts';
import { verifiedAssertion } from './signed-decisions.ts';

/** Where in the body the fault of a result lies, for those that have a place. */
const PATHS: Readonly<Record<string, string>> = { approval_not_found: '/approval_id', self_approval: '/decision' };

/**
 * Records what the authenticated principal decided about exactly what was shown. The database judges under the row lock, so that of
 * many clicks one is recorded and the others learn which.
 */
export async function decide(call: Call): Promise<Answer<DecidedRun>> {
  const { deps, who, hints } = call;
  // A bearer key proves which program calls, not that a person looked; outside development that is not enough.
  if (who.via === 'key' && !deps.development) return refused('approvals_need_development');
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const { run_id } = id;
  const body = await readBody(call.request, DecideBody);
  if (!body.ok) return body.refused;
  const proof = await proofOf(call, body.value);
  if (!proof.ok) return proof.refused;

  const { assertion: _, break_glass = false, reason = null, ...shown } = body.value;
  const { decision: wanted } = shown;
  const { result, decided, row } = await inRunSpan(
    await tracedRun(call, run_id),
    'decision',
    { decision: wanted },
    async (span) => {
      const judged = await deps.store.decide(
        who,
        {
          run_id,
          ...shown,
          decision_id: deps.ids.id('decision'),
          method: proof.method,
          break_glass,
          assertion: proof.assertion,
          reason,
        },
        deps.durations.stage_lease_ms,
      );
      span.set({ result: judged.result });
      if (judged.result === 'recorded' && judged.row !== null) hints.send(judged.row, 'decision.committed.before-hint');
      return judged;
    },
  );
  if (result === 'recorded' || result === 'repeated') {
    const decision = decided.findLast((one) => one.principal_id === who.principal_id);
    if (row === null || decision === undefined) throw new Error(`a decision was ${result}, but it is not there`);
    if (result === 'recorded' && break_glass) raiseBrokenGlass(call, row.run_id, decision.decision_id);
    return answered({ result, run_id, state: row.state, revision: row.revision, decision, decisions: decided });
  }
  return refused(result, PATHS[result] ?? '', {
    // Unknown runs are turned away before anything is written; every other refusal is in the audit already.
    audited: result !== 'run_not_found',
    ...(result === 'already_decided' ? { decisions: decided } : {}),
  });
}

/** By what the run is traced: read only where somebody traces, and the decision is recorded even if that fails. */
async function tracedRun({ deps, who }: Call, run_id: RunId): Promise<TracedRun> {
  const run = isTracing() ? await deps.store.load(who.tenant_id, run_id).catch(() => undefined) : undefined;
  return { run_id, trace_context: run?.manifest.trace_context ?? null };
}

/** Said aloud once the commit has written the audit event: a log that could not be written must not undo the decision. */
function raiseBrokenGlass({ deps, who }: Call, run_id: RunId, decision_id: string): void {
  const { tenant_id, principal_id } = who;
  deps.log.error({ run_id, tenant_id, principal_id, decision_id, code: 'break_glass' }, 'alarm: the glass was broken');
  deps.alarm?.('break_glass');
}

type Proof = ({ ok: true } & Pick<DecisionCommit, 'method' | 'assertion'>) | { ok: false; refused: Refused };

/** How it is known that a person decided: by their passkey's signature, by their fresh session, or, in development, by their key. */
async function proofOf(call: Call, body: DecideBody): Promise<Proof> {
  const { deps, who } = call;
  if (body.break_glass === true) {
    if (body.decision !== 'approve') return { ok: false, refused: refused('value_invalid', '/decision') };
    if (body.reason === undefined) return { ok: false, refused: refused('member_missing', '/reason') };
    if (body.assertion === undefined) return { ok: false, refused: refused('signature_required', '/assertion') };
  }
  if (who.via === 'key') {
    return body.assertion === undefined
      ? { ok: true, method: 'dev_key', assertion: null }
      : { ok: false, refused: refused('session_required', '/assertion') };
  }
  if (body.assertion !== undefined) {
    // What nobody here can verify must not count as less.
    if (deps.signIn === undefined) return { ok: false, refused: refused('sign_in_unavailable') };
    const verified = await verifiedAssertion(call, deps.signIn, body, body.assertion);
    return verified.ok ? { ok: true, method: 'passkey', assertion: verified.assertion } : verified;
  }
  // A rejection only stops: nobody has to find their passkey first.
  if (body.decision === 'approve' && !isFresh(who.session)) return { ok: false, refused: refused('step_up_required') };
  return { ok: true, method: 'session', assertion: null };
}
