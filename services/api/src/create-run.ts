import { type CreatedRun, CreateRunBody, ROUTES } from '@counterstamp/api-contract';
import {
  canonicalJson,
  digestOf,
  EXPIRY_MARGIN_MS,
  type JsonObject,
  type JsonValue,
  type NewRun,
  type Parsed,
  parseWith,
  pointer,
  type RunId,
  runIdFromUuid,
  settleMs,
} from '@counterstamp/manifest-core';
import { currentTraceparent } from '@counterstamp/telemetry';
import { type Answer, answered, type Call } from './command.ts';
import { refused, refusedBy } from './problem.ts';
import { proposalDraft } from './proposals.ts';
import { readJsonBody } from './raw-body.ts';
import { traceparentOf } from './traceparent.ts';
import type { WorkflowDoor } from './workflow-door.ts';

/** The workflow of a request that names none. */
const WORKFLOW_DEFAULT = 'refund';

/** Accepts a request for an action: the one way in. Idempotent by tenant, request id, superseded run and body. */
export async function createRun(call: Call): Promise<Answer<CreatedRun>> {
  const { deps, request } = call;
  const json = await readJsonBody(request);
  if (!json.ok) return refusedBy(json.refusal);
  const created = newRun(call, json.value);
  if (!created.ok) return refusedBy(created.refusal);

  const outcome = await deps.store.createRun(created.value);
  switch (outcome.kind) {
    case 'created':
    case 'existing': {
      const { row } = outcome;
      if (outcome.kind === 'created') call.hints.send(row, 'create.committed.before-hint');
      const { run_id, state, revision } = row;
      const generation = await generationOf(call, created.value, run_id);
      return answered({ run_id, state, revision, generation }, outcome.kind === 'created' ? 201 : 200, {
        location: ROUTES.getRun.path.replace('{run_id}', run_id),
      });
    }
    case 'idempotency_conflict':
      return refused('idempotency_conflict', '/request_id', {
        audited: true,
        ...(outcome.run_id === null ? {} : { run_id: outcome.run_id }),
      });
    case 'supersedes_invalid':
      return refused('supersedes_invalid', '/supersedes');
    case 'on_behalf_unknown':
      return refused('on_behalf_unknown', '/on_behalf_of');
    case 'subject_erased':
      return refused('subject_erased', '/subject');
    case 'open_runs_limit':
      return refused('open_runs_limit');
    case 'principal_unknown':
      // Disabled since the key was checked.
      return refused('unauthenticated');
  }
}

/** Checks a body against the contract and the workflow, and makes the run of it. */
function newRun({ deps, who, request }: Call, body: JsonValue): Parsed<NewRun> {
  const shape = parseWith(CreateRunBody, body);
  if (!shape.ok) return shape;
  const {
    request_id,
    supersedes,
    context = [],
    proposer,
    allowed_operations,
    approval_life_ms,
    run_life_ms,
    on_behalf_of,
    subject,
  } = shape.value;
  if (run_life_ms !== undefined && run_life_ms > deps.durations.run_life_ms) {
    const detail = `a run lives ${deps.durations.run_life_ms} ms here; a request may only shorten that`;
    return { ok: false, refusal: { code: 'value_too_large', path: '/run_life_ms', detail } };
  }
  const leastMs = deps.durations.epsilon_ms + EXPIRY_MARGIN_MS;
  if (approval_life_ms !== undefined && approval_life_ms <= leastMs) {
    const detail = `an approval must live longer than ${leastMs} ms, or it could never be used`;
    return { ok: false, refusal: { code: 'value_invalid', path: '/approval_life_ms', detail } };
  }
  if (approval_life_ms !== undefined && approval_life_ms > deps.durations.approval_life_ms) {
    const detail = `an approval lives ${deps.durations.approval_life_ms} ms here; a request may only shorten that`;
    return { ok: false, refusal: { code: 'value_too_large', path: '/approval_life_ms', detail } };
  }

  const door = deps.workflows.get(shape.value.workflow ?? WORKFLOW_DEFAULT);
  if (door === undefined) return { ok: false, refusal: refused('workflow_unknown', '/workflow') };
  const input = parseInput(door, shape.value.input);
  if (!input.ok) return input;
  const operations = checkOperations(door, allowed_operations);
  if (!operations.ok) return operations;
  let proposal: NewRun['proposal'] = null;
  if (shape.value.proposal !== undefined) {
    const parsed = parseWith(door.proposal, shape.value.proposal, '/proposal');
    if (!parsed.ok) return parsed;
    proposal = proposalDraft(deps.ids, who, parsed.value);
  }

  return {
    ok: true,
    value: {
      run_id: runIdFromUuid(deps.ids.uuid()),
      tenant_id: who.tenant_id,
      principal_id: who.principal_id,
      on_behalf_of: on_behalf_of ?? null,
      request_id,
      supersedes: supersedes ?? null,
      workflow: door.name,
      workflow_version: door.version,
      connector: door.connector.name,
      connector_version: door.connector.version,
      proposer: proposer ?? (proposal === null ? 'rules' : 'external'),
      subject: subject ?? request_id,
      input_canonical: canonicalJson(input.value),
      // Over what was sent, before any default is filled in: a later release with other defaults still knows the request again.
      body_digest: digestOf('cs.body.v1', canonicalJson(body)),
      allowed_operations: operations.value,
      context,
      proposal,
      run_life_ms: run_life_ms ?? deps.durations.run_life_ms,
      approval_life_ms: approval_life_ms ?? deps.durations.approval_life_ms,
      wake_in_ms: deps.durations.stage_lease_ms,
      settle_ms: settleMs(deps.durations, door.visibilityMs),
      open_runs_max: deps.limits.open_runs_max,
      trace_context: currentTraceparent() ?? traceparentOf(request),
    },
  };
}

function parseInput(door: WorkflowDoor, value: JsonObject): Parsed<JsonObject> {
  const parsed = parseWith(door.input, value, '/input');
  if (!parsed.ok) return parsed;
  const refusal = door.checkInput(parsed.value);
  return refusal === undefined ? parsed : { ok: false, refusal: { ...refusal, path: `/input${refusal.path}` } };
}

/** A request may narrow what its run may do, and only to operations that the workflow knows. */
function checkOperations(door: WorkflowDoor, wanted: readonly string[] | undefined): Parsed<string[]> {
  if (wanted === undefined) return { ok: true, value: [...door.operations] };
  for (const [index, operation] of wanted.entries()) {
    const fault = !door.operations.includes(operation)
      ? `the workflow ${door.name} has no such operation`
      : wanted.indexOf(operation) < index
        ? 'the operation is named twice'
        : undefined;
    if (fault !== undefined) {
      const path = pointer('/allowed_operations', index);
      return { ok: false, refusal: { code: 'value_invalid', path, detail: fault } };
    }
  }
  return { ok: true, value: [...wanted] };
}

/** A first request is generation 1; what number a successor got stands in its row. */
async function generationOf({ deps, who }: Call, created: NewRun, run_id: RunId): Promise<number> {
  if (created.supersedes === null) return 1;
  const loaded = await deps.store.load(who.tenant_id, run_id);
  if (loaded === undefined) throw new Error(`${run_id} is gone`);
  return loaded.manifest.generation;
}
