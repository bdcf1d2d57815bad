import { keyRetentionMs, type Outcome, type Prepared } from '@counterstamp/connectors';
import {
  type Clock,
  type CommitOutcome,
  type Durations,
  digestOf,
  EXPIRY_MARGIN_MS,
  type Failpoint,
  type HotRow,
  type Ids,
  idempotencyKey,
  type LoadedRun,
  type OneShot,
  retryReserveMs,
  type SendResult,
  type Store,
} from '@counterstamp/manifest-core';
import { StoreUnavailable } from '@counterstamp/manifest-store';
import { deferral, type OneShotConnection, type openOneShot, type StageDecision } from '@counterstamp/stage-runtime';
import { inCommitSpan, inDecideSpan, type Logger, type Metrics, startSpan } from '@counterstamp/telemetry';
import type { Workflow } from '@counterstamp/workflows';
import type { ApprovalTrust } from './approvals.ts';
import {
  credibleOutcome,
  decideOutcome,
  decideRefusal,
  type OutcomeDecision,
  outcomeRetryMs,
  type Refusable,
} from './decide.ts';

/** Largest answer that is read from a provider. */
const REPLY_MAX_BYTES = 256 * 1024;

export interface PerformDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  failpoint: Failpoint;
  durations: Durations;
  /** Opens the connection of the one send. */
  open: typeof openOneShot;
  log: Logger;
  metrics: Metrics;
  /** By what recorded approvals are judged. */
  trust: ApprovalTrust;
}

/** Time since a moment, by the clock that says more: the monotonic one may stand still while a virtual machine sleeps (protocol rule 4). */
function stopwatch(clock: Clock): () => number {
  const monotonic = clock.monotonicMs();
  const wall = clock.wallMs();
  return () => Math.max(clock.monotonicMs() - monotonic, clock.wallMs() - wall);
}

/**
 * One dispatch, in the order of protocol rule 5: connection open, clock started, every check and the attempt in one commit, deadline check, write.
 * Between the acknowledged commit and the write nothing is awaited. Only this call, in this process life, ever sends this attempt (rule 9).
 * `decisionIds`: the decisions that this process verified; no other counts.
 * From needs_reconciliation it is the recorded retry (rule 19): the same order, key and bytes, and a new clock.
 */
export async function performDispatch(
  run: LoadedRun,
  workflow: Workflow,
  decisionIds: readonly string[],
  deps: PerformDeps,
): Promise<Refusable> {
  const { store, clock, ids, failpoint, durations, metrics } = deps;
  const { manifest } = run;
  const { action, action_revision, approval, run_id } = manifest;
  if (action === null || action_revision === null || approval === null)
    throw new Error('a run is dispatched without an action');
  const retry = manifest.state === 'needs_reconciliation';
  const log = deps.log.child({ run_id, revision: manifest.revision, stage: 'execute' });

  const idempotency_key = idempotencyKey(run_id, action_revision, action.digest);
  const prepared = workflow.connector.prepare(action.fields, { run_id, action_digest: action.digest, idempotency_key });
  // A copy of our own: what is digested, stored and compared right before the write stays what it is, whatever a connector does to its buffer.
  const storedBytes = Uint8Array.from(prepared.bytes);

  const opened = await deps.open(
    {
      ...prepared.request,
      headers: headersOf(prepared, workflow, idempotency_key),
      bodyLength: storedBytes.byteLength,
    },
    { connectTimeoutMs: durations.connect_timeout_ms },
  );
  if (opened.kind === 'not_sent') {
    log.warn({ reason: opened.reason }, 'no connection; no attempt was made');
    return deferral(run, durations, 'not_connected', `connection: ${opened.reason}`);
  }
  const { connection } = opened;
  try {
    await failpoint.reach('dispatch.loaded', run_id);
    if (connection.destroyed)
      return deferral(run, durations, 'not_connected', 'connection: closed before the dispatch');
    const elapsedMs = stopwatch(clock);
    await failpoint.reach('dispatch.t0.before-begin', run_id);

    const attempt_id = ids.id('attempt');
    const move = {
      from: manifest.state,
      to: 'executing',
      trigger: retry ? 'retry_dispatched' : 'dispatched',
    } as const;
    const commit = {
      run_id,
      expected: manifest.revision,
      attempt_id,
      idempotency_key,
      action_digest: action.digest,
      request_bytes: storedBytes,
      request_digest: digestOf('cs.request-bytes.v1', storedBytes),
      operation: workflow.effectOperation,
      call_deadline_ms: durations.call_deadline_ms,
      expiry_margin_ms: durations.epsilon_ms + EXPIRY_MARGIN_MS,
      sweep_grace_ms: durations.sweep_grace_ms,
      count_dev_keys: deps.trust.development,
      decision_ids: decisionIds,
      approval_digest: approval.approval_digest,
      retry: retry ? { retention_ms: keyRetentionMs(workflow.contract), reserve_ms: retryReserveMs(durations) } : null,
    };
    const committing = inCommitSpan(move, () => store.commitDispatch(commit));
    // Awaited below; meanwhile a rejection must not end the process.
    committing.catch(() => undefined);
    await failpoint.reach('dispatch.call-sent', run_id);
    // An ambiguous commit throws here: it counts as not won, nothing is sent, the sweeper resolves it (rule 7).
    const dispatched = await committing;
    if (dispatched.kind === 'stale_revision') return { kind: 'reload' };
    if (dispatched.kind === 'refused') return decideRefusal(run, dispatched, durations);
    failpoint.reachSync('dispatch.acked.before-check', run_id);
    if (retry) failpoint.reachSync('retry.committed.before-write', run_id);

    const leftMs = () => dispatched.budget_ms - elapsedMs();
    const transport = oneSend(connection, storedBytes, leftMs, durations.epsilon_ms, failpoint);
    // Opened before the check and ended after the answer: nothing of it runs between the check and the write.
    const sending = startSpan('send', { attempt_n: dispatched.attempt_n, retry });
    // Up to the write inside `execute` everything is synchronous; what follows waits for the answer.
    const answer = executed(workflow, prepared, transport, log.child({ attempt_id }));
    log.info(
      { ...move, revision: dispatched.row.revision, attempt_id, attempt_n: dispatched.attempt_n, idempotency_key },
      'dispatched',
    );
    await failpoint.reach('dispatch.written.before-response', run_id);
    const outcome = credibleOutcome(await answer, transport.result());
    sending.end({ outcome: outcome.class });
    metrics.attempt(outcome.class, elapsedMs());
    await failpoint.reach('dispatch.response.before-outcome', run_id);
    log.info(
      { attempt_id, outcome: outcome.class, ...('reason' in outcome ? { reason: outcome.reason } : {}) },
      'answered',
    );

    const decision = inDecideSpan(() =>
      decideOutcome(attempt_id, manifest.attempts, outcome, durations, workflow.visibilityMs),
    );
    return await recordOutcome(
      dispatched.row,
      attempt_id,
      outcome,
      decision,
      () => leftMs() + durations.sweep_grace_ms,
      deps,
      log,
    );
  } finally {
    connection.close();
  }
}

/** The connection as the connector sees it: the stored bytes and nothing else, once, and only while the deadline check holds. */
function oneSend(
  connection: OneShotConnection,
  storedBytes: Uint8Array,
  leftMs: () => number,
  epsilonMs: number,
  failpoint: Failpoint,
): OneShot & { result(): SendResult | undefined } {
  let sent: SendResult | undefined;
  return {
    async send(bytes) {
      const sending = connection.send(bytes, {
        storedBytes,
        mayStillSend: () => {
          const may = leftMs() >= epsilonMs;
          failpoint.reachSync('dispatch.checked.before-write');
          return may;
        },
        timeoutMs: Math.max(1, leftMs()),
        maxBytes: REPLY_MAX_BYTES,
      });
      sent = await sending;
      return sent;
    },
    result: () => sent,
  };
}

/** The request's headers, with the key that is committed: a connector may name a key, it may not choose one. */
function headersOf({ request }: Prepared, workflow: Workflow, idempotency_key: string): Record<string, string> {
  const given = Object.entries(request.headers).filter(([name]) => name.toLowerCase() !== 'idempotency-key');
  const keyed = workflow.contract.idempotency.kind === 'key' ? { 'idempotency-key': idempotency_key } : {};
  return { ...Object.fromEntries(given), ...keyed };
}

/** What the connector makes of the one send. A connector that throws has told us nothing about the effect. */
async function executed(workflow: Workflow, prepared: Prepared, transport: OneShot, log: Logger): Promise<Outcome> {
  try {
    return await workflow.connector.execute(prepared, transport);
  } catch (error) {
    log.error({ err: error }, 'the connector failed; the outcome is uncertain unless nothing was sent');
    return { class: 'uncertain', reason: 'connector_failed' };
  }
}

/**
 * Commits the outcome on the revision of the dispatch commit (rule 13). A lost swap appends it as evidence instead (rule 14). While the
 * database is away it is tried again until the sweeper's grace is over; from then on the run is looked up anyway.
 */
async function recordOutcome(
  row: HotRow,
  attempt_id: string,
  outcome: Outcome,
  decision: OutcomeDecision,
  leftMs: () => number,
  deps: PerformDeps,
  log: Logger,
): Promise<StageDecision> {
  const { store, clock, failpoint } = deps;
  const { run_id } = row;
  const to = (
    {
      effect_accepted: 'verifying',
      effect_rejected: 'failed',
      outcome_uncertain: 'needs_reconciliation',
      nothing_sent: 'needs_reconciliation',
    } as const
  )[decision.on];
  for (let tries = 0; ; tries++) {
    try {
      const committed: CommitOutcome = await inCommitSpan(
        { from: 'executing', to, trigger: decision.on, facts: decision.facts },
        () =>
          store.commitStage({
            run_id,
            expected: row.revision,
            from: 'executing',
            on: decision.on,
            to,
            facts: decision.facts,
            wake_in_ms: decision.wake_in_ms,
          }),
      );
      if (committed.kind === 'committed') {
        const code = decision.facts.stop_reason?.code;
        log.info(
          {
            revision: committed.row.revision,
            from: 'executing',
            to,
            trigger: decision.on,
            ...(code === undefined ? {} : { code }),
          },
          'committed',
        );
        return { kind: 'committed', row: committed.row };
      }
      await failpoint.reach('evidence.before-insert', run_id);
      const kept = await store.appendEvidence({
        run_id,
        attempt_id,
        applied: decision.applied,
        provider_ref: decision.facts.attempt_outcome?.provider_ref ?? null,
        body: { ...outcome },
      });
      // Known: it was our own commit whose acknowledgement was lost.
      if (kept === 'known') return { kind: 'reload' };
      log.warn({ attempt_id, kept }, 'the run moved on before the answer came; the answer is kept as evidence');
      return { kind: 'nothing', reason: 'outcome kept as evidence' };
    } catch (error) {
      if (!(error instanceof StoreUnavailable) || leftMs() <= 0) throw error;
      log.warn({ attempt_id, tries: tries + 1 }, 'the outcome is not recorded yet; trying again');
      await clock.sleep(outcomeRetryMs(tries));
    }
  }
}
