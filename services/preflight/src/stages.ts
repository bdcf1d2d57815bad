import {
  currentEvidence,
  type Durations,
  type Ids,
  type Limits,
  type LoadedRun,
  pendingProposal,
  type Stage,
} from '@counterstamp/manifest-core';
import type { Judge, StageDecision } from '@counterstamp/stage-runtime';
import { inDecideSpan } from '@counterstamp/telemetry';
import { type Systems, type Workflow, workflowOf } from '@counterstamp/workflows';
import {
  decideAction,
  decideDeadline,
  decideEvidence,
  decideOperations,
  decideProposal,
  decideRequest,
  decideScope,
  stop,
} from './decide.ts';
import { evidenceDrafts, gatherEvidence, gatherRequest, gatherScope, recordedFacts, rulesProposal } from './facts.ts';

export interface PreflightDeps {
  systems: Systems;
  ids: Ids;
  durations: Durations;
  limits: Limits;
}

/** What this service does at each of its three stations. */
export function preflightStages({
  systems,
  ids,
  durations,
  limits,
}: PreflightDeps): Pick<Record<Stage, Judge>, 'preflight' | 'collect' | 'propose'> {
  const terms = { durations, limits };
  /** What every station asks first: is there still time, and is the run's workflow installed? */
  const station =
    (judge: (run: LoadedRun, workflow: Workflow) => Promise<StageDecision>): Judge =>
    async (run) => {
      const overdue = decideDeadline(run);
      if (overdue !== undefined) return overdue;
      // What was asked for is gone, and nothing was sent yet: there is nothing to go on with.
      if (run.manifest.erased_at !== null) return stop('personal_data_erased');
      const altered = currentEvidence(run.manifest).find((item) => item.altered);
      if (altered !== undefined) return stop('evidence_altered', `It is ${altered.evidence_id}.`);
      const { workflow: name, workflow_version } = run.manifest;
      const workflow = workflowOf(systems, run.manifest);
      if (workflow === undefined)
        return stop('operation_unavailable', `Workflow ${name} version ${workflow_version} is not installed.`);
      return await judge(run, workflow);
    };

  const preflight = station(async (run, workflow) => {
    const { manifest } = run;
    const unavailable = decideOperations(manifest, workflow);
    if (unavailable !== undefined) return unavailable;
    if (manifest.state === 'queued') {
      const request = await gatherRequest(manifest, workflow, systems);
      return inDecideSpan(() =>
        request.kind === 'records'
          ? decideRequest(
              run,
              request,
              workflow.checkRequest(manifest, request.records),
              evidenceDrafts(run, request.records, [], ids),
              terms,
            )
          : decideRequest(run, request, undefined, [], terms),
      );
    }
    const gathered = await gatherScope(manifest, workflow, systems);
    return inDecideSpan(() =>
      decideScope(
        manifest,
        gathered,
        (records) => workflow.checkScope(manifest, [...recordedFacts(manifest), ...records]),
        terms,
      ),
    );
  });

  const collect = station(async (run, workflow) => {
    const { manifest } = run;
    const gathered = await gatherEvidence(manifest, workflow, systems);
    return inDecideSpan(() =>
      gathered.kind === 'records'
        ? decideEvidence(
            manifest,
            gathered,
            workflow.checkEvidence(manifest, gathered.records),
            evidenceDrafts(run, gathered.records, manifest.context, ids),
            terms,
          )
        : decideEvidence(manifest, gathered, undefined, [], terms),
    );
  });

  const propose = station(async (run, workflow) => {
    const { manifest } = run;
    const pending = pendingProposal(manifest);
    if (manifest.state === 'collecting') {
      const drafted =
        pending === undefined && manifest.proposer === 'rules' ? rulesProposal(manifest, workflow, ids) : undefined;
      return inDecideSpan(() => decideProposal(run, workflow, drafted, terms));
    }
    if (pending === undefined) throw new Error('a proposed run has no proposal');
    return inDecideSpan(() => {
      const verdict = workflow.checkProposal(manifest, pending.body, currentEvidence(manifest));
      const fresh = { approval_id: ids.id('approval'), nonce: ids.salt() };
      return decideAction(run, pending, verdict, workflow, fresh, terms);
    });
  });

  return { preflight, collect, propose };
}
