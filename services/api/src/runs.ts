import { type ApprovalCard, ListQuery, type RunEvents, type RunPage, type RunView } from '@counterstamp/api-contract';
import { Digest, dispatchGuards, Revision, STATES, STOP_REASONS, type State } from '@counterstamp/manifest-core';
import { approvalCard } from './approval-card.ts';
import { type Answer, answered, type Call, runIdOf } from './command.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';
import { holdGuard } from './holds.ts';
import { refused, refusedBy } from './problem.ts';
import { parseQuery } from './query.ts';
import { sendersInDoubt, settlesAt } from './settling.ts';

/** How far back the ends of a run's executors are looked for. Beyond it `settles_at` names only the call deadline; a refused verdict, all. */
const LOOK_BACK = 1_000;

/** One run, with each condition of its dispatch and what is safe to do next at a stop. */
export async function getRun(call: Call): Promise<Answer<RunView>> {
  const { deps, who } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const [loaded, holds] = await Promise.all([
    deps.store.load(who.tenant_id, id.run_id),
    deps.store.holds(who.tenant_id),
  ]);
  if (loaded === undefined) return refused('run_not_found');
  const { manifest, nowMs, now } = loaded;
  const door = deps.workflows.get(manifest.workflow);
  const inDoubt = door !== undefined && sendersInDoubt(manifest).size > 0;
  const executors = inDoubt ? await deps.store.instances({ service: 'executor', limit: LOOK_BACK }) : [];
  return answered({
    ...manifest,
    guards: [...dispatchGuards(manifest, nowMs, deps.durations), holdGuard(holds, manifest.connector)],
    next: manifest.stop_reason === null ? null : STOP_REASONS[manifest.stop_reason.code].next,
    as_of: now,
    settles_at: door === undefined ? null : settlesAt(manifest, executors, deps.durations, door.visibilityMs),
  });
}

/** What an approver has to see before a decision, and nothing that the approval does not bind. */
export async function getApprovalCard(call: Call): Promise<Answer<ApprovalCard>> {
  const { deps, who } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const { run_id } = id;
  const [loaded, obstacle] = await Promise.all([
    deps.store.load(who.tenant_id, run_id),
    deps.store.approverObstacle(who, run_id),
  ]);
  if (loaded === undefined) return refused('run_not_found');
  const made = approvalCard(loaded, { who, obstacle, development: deps.development });
  switch (made.kind) {
    case 'card':
      return answered(made.card);
    case 'not_asked':
      return refused('approval_not_found');
    case 'not_bound':
      // A read changes nothing, so the audit event is the executor's, which stops the run; whoever reads logs learns of it now.
      deps.log.error(
        { run_id, code: 'card_not_bound', member: made.member },
        'what is stored is not what the approval binds',
      );
      return refused('card_not_bound', '', { detail: `The approval binds another ${made.member}.` });
  }
}

/** The tenant's runs, newest first, page by page. */
export async function listRuns(call: Call): Promise<Answer<RunPage>> {
  const { deps, who, request } = call;
  const query = parseQuery(ListQuery, request);
  if (!query.ok) return refusedBy(query.refusal);
  const { state, limit, cursor } = query.value;
  const before = cursor === undefined ? undefined : decodeCursor(cursor, state);
  if (cursor !== undefined && before === undefined) return refused('cursor_malformed', '/cursor');

  // One more than asked for tells whether there is a next page.
  const found = await deps.store.list(who.tenant_id, {
    limit: limit + 1,
    ...(state === undefined ? {} : { state }),
    ...(before === undefined ? {} : { before }),
  });
  const runs = found.slice(0, limit);
  const last = runs.at(-1);
  const next_cursor = found.length > limit && last !== undefined ? encodeCursor(last.run_id, state) : null;
  return answered({ runs, next_cursor });
}

/** A run's history, oldest first. */
export async function runEvents(call: Call): Promise<Answer<RunEvents>> {
  const { deps, who } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const stored = await deps.store.events(who.tenant_id, id.run_id);
  if (stored === undefined) return refused('run_not_found');
  const events = stored.map((event) => ({
    run_id: id.run_id,
    revision: Revision.parse(event.revision),
    from: event.from === null ? null : stateOf(event.from),
    to: stateOf(event.to),
    trigger: event.trigger,
    actor: event.actor,
    at: isoOfMicroseconds(event.at_us),
    at_us: event.at_us,
    payload: event.payload,
    payload_digest: Digest.parse(event.payload_digest),
    previous_hash: event.previous_hash === null ? null : Digest.parse(event.previous_hash),
    hash: Digest.parse(event.hash),
  }));
  return answered({ events });
}

function stateOf(name: string): State {
  const state = STATES.find((known) => known === name);
  if (state === undefined) throw new Error(`an event names the state ${name}`);
  return state;
}

/** The instant as the rest of the api writes it. */
function isoOfMicroseconds(at_us: string): string {
  return new Date(Number(at_us.slice(0, -3))).toISOString().replace('Z', `${at_us.slice(-3)}Z`);
}
