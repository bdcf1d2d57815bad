import { ProposeBody, type ProposedRun } from '@counterstamp/api-contract';
import {
  canonicalJson,
  cyclesRemain,
  digestOf,
  type Ids,
  type JsonObject,
  type Manifest,
  type Proposal,
  type ProposalDraft,
  parseWith,
} from '@counterstamp/manifest-core';
import type { PrincipalRef } from '@counterstamp/manifest-store';
import { inRunSpan, moveAttributes } from '@counterstamp/telemetry';
import { type Answer, answered, type Call, isBeforeDispatch, runIdOf, SWAPS_MAX } from './command.ts';
import { refused, refusedBy } from './problem.ts';
import { readJsonBody } from './raw-body.ts';

/** A proposal from outside on its way into the store: untrusted until every field was checked against evidence and policy. */
export function proposalDraft(ids: Ids, who: PrincipalRef, body: JsonObject): ProposalDraft {
  const body_canonical = canonicalJson(body);
  return {
    proposal_id: ids.id('proposal'),
    author: who.principal_id,
    author_kind: 'external',
    body_canonical,
    body_digest: digestOf('cs.proposal.v1', body_canonical),
  };
}

/**
 * Takes a proposal. While the run collects and its evidence is complete it goes on to the checks; while an approval waits it voids the
 * approval, which counts as a cycle. The proposal that is pending already changes nothing.
 */
export async function propose(call: Call): Promise<Answer<ProposedRun>> {
  const { deps, who, hints } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const { run_id } = id;
  const json = await readJsonBody(call.request);
  if (!json.ok) return refusedBy(json.refusal);
  const body = parseWith(ProposeBody, json.value);
  if (!body.ok) return refusedBy(body.refusal);

  for (let swap = 0; swap < SWAPS_MAX; swap++) {
    const loaded = await deps.store.load(who.tenant_id, run_id);
    if (loaded === undefined) return refused('run_not_found');
    const { manifest } = loaded;
    if (manifest.erased_at !== null) return refused('subject_erased');
    const door = deps.workflows.get(manifest.workflow);
    if (door === undefined) return refused('workflow_unknown');
    const parsed = parseWith(door.proposal, body.value.proposal, '/proposal');
    if (!parsed.ok) return refusedBy(parsed.refusal);
    const proposal = proposalDraft(deps.ids, who, parsed.value);

    const pending = pendingProposalOf(manifest);
    if (pending !== undefined && canonicalJson(pending.body) === proposal.body_canonical) {
      const { state, revision } = manifest;
      return answered({ run_id, state, revision, proposal_id: pending.proposal_id });
    }
    const move = moveFor(manifest);
    if (move === undefined)
      return refused('not_awaiting_proposal', '', {
        detail:
          manifest.state === 'collecting'
            ? 'the evidence is not complete yet; propose when evidence_complete is true'
            : `the run is ${manifest.state}`,
      });
    if (move.on === 'proposal_superseded' && !cyclesRemain(manifest, deps.limits.proposal_cycles_max))
      return refused('proposal_limit');

    const { from, to, on: trigger } = move;
    const outcome = await inRunSpan(manifest, 'proposal', moveAttributes({ from, to, trigger }), async (span) => {
      const committed = await deps.store.commit(who, {
        run_id,
        expected: manifest.revision,
        ...move,
        facts: { proposal },
        wake_in_ms: deps.durations.stage_lease_ms,
      });
      span.set({ result: committed.kind });
      if (committed.kind === 'committed') hints.send(committed.row, 'stage.committed.before-hint');
      return committed;
    });
    if (outcome.kind === 'committed') {
      const { state, revision } = outcome.row;
      return answered({ run_id, state, revision, proposal_id: proposal.proposal_id });
    }
  }
  return refused('stale_revision');
}

/** The proposal that a repeated call is measured against: the newest, while it is neither refused nor acted upon. */
function pendingProposalOf(manifest: Manifest): Proposal | undefined {
  const newest = manifest.proposals.at(-1);
  return newest?.refusal === null && isBeforeDispatch(manifest.state) ? newest : undefined;
}

/** What a new proposal does to the run as it stands; `undefined` when it waits for none. */
function moveFor({ state, evidence_complete }: Manifest) {
  if (state === 'collecting' && evidence_complete)
    return { from: state, on: 'proposal_received', to: 'proposed' } as const;
  if (state === 'awaiting_approval') return { from: state, on: 'proposal_superseded', to: 'collecting' } as const;
  return undefined;
}
