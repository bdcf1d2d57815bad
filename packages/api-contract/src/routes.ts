import { Json } from '@counterstamp/manifest-core';
import { createRoute } from '@hono/zod-openapi';
import { z } from 'zod';
import {
  CreatedRun,
  DecidedRun,
  FencedInstance,
  Health,
  Holds,
  Instances,
  ProposedRun,
  Readiness,
  ReleasedHold,
  RunEvents,
  RunPage,
  RunStanding,
  RunView,
  SupportedVerdict,
} from './answers.ts';
import {
  CancelBody,
  CreateRunBody,
  DecideBody,
  FenceBody,
  HoldBody,
  ProposeBody,
  SupportBody,
  VerdictBody,
} from './bodies.ts';
import { HoldParameters, InstanceParameters, InstancesQuery, ListQuery, RunParameters } from './parameters.ts';
import { PROBLEM_MEDIA_TYPE, Problem } from './problem.ts';

// The generator follows a recursive schema without end unless its type is spelled out; parsing is not touched by this.
z.globalRegistry.add(Json, {
  type: ['null', 'boolean', 'number', 'string', 'array', 'object'],
  description: 'Any JSON value',
});

/** Name of the security scheme in the document: a key of ours as a bearer token. */
export const KEY_SCHEME = 'api_key';

const security = [{ [KEY_SCHEME]: [] }];
const body = <T extends z.ZodType>(schema: T, required = true) => ({
  body: { required, content: { 'application/json': { schema } } },
});
const json = <T extends z.ZodType>(description: string, schema: T) => ({
  description,
  content: { 'application/json': { schema } },
});
const problem = (description: string) => ({ description, content: { [PROBLEM_MEDIA_TYPE]: { schema: Problem } } });

const unauthenticated = problem('unauthenticated');
const unavailable = problem('store_unavailable; repeat the request after the time that Retry-After names');
const malformed = problem('What is wrong, by stable code and place');
const notFound = problem('run_not_found; also for a run of another tenant');
const tooLarge = problem('body_too_large');
const unsupported = problem('content_type_unsupported');

/**
 * Every route of the api: documentation for people and programs, and the paths that api and client use. Bodies are not parsed by the
 * router (a lenient parser would settle what our input gate refuses), so these schemas are applied by the api itself.
 */
export const ROUTES = {
  createRun: createRoute({
    method: 'post',
    path: '/v1/runs',
    summary: 'Ask for an action. Repeating the same request answers with the same run.',
    security,
    request: body(CreateRunBody),
    responses: {
      200: json('The run existed already', CreatedRun),
      201: json('The run was created; Location names it', CreatedRun),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      409: problem('idempotency_conflict, supersedes_invalid'),
      413: tooLarge,
      415: unsupported,
      503: unavailable,
    },
  }),
  listRuns: createRoute({
    method: 'get',
    path: '/v1/runs',
    summary: 'The tenant’s runs, newest first.',
    security,
    request: { query: ListQuery },
    responses: { 200: json('A page', RunPage), 400: malformed, 401: unauthenticated, 503: unavailable },
  }),
  getRun: createRoute({
    method: 'get',
    path: '/v1/runs/{run_id}',
    summary: 'One run: the manifest, each condition of its dispatch, and what to do next at a stop.',
    security,
    request: { params: RunParameters },
    responses: { 200: json('The run', RunView), 400: malformed, 401: unauthenticated, 404: notFound, 503: unavailable },
  }),
  runEvents: createRoute({
    method: 'get',
    path: '/v1/runs/{run_id}/events',
    summary: 'The history of a run: one event per revision, chained by hash.',
    security,
    request: { params: RunParameters },
    responses: {
      200: json('Oldest first', RunEvents),
      400: malformed,
      401: unauthenticated,
      404: notFound,
      503: unavailable,
    },
  }),
  propose: createRoute({
    method: 'post',
    path: '/v1/runs/{run_id}/proposals',
    summary: 'Propose an action from outside. While an approval waits, a changed proposal voids it.',
    security,
    request: { params: RunParameters, ...body(ProposeBody) },
    responses: {
      200: json('The proposal is pending', ProposedRun),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      404: notFound,
      409: problem('not_awaiting_proposal, proposal_limit, stale_revision'),
      413: tooLarge,
      415: unsupported,
      503: unavailable,
    },
  }),
  decide: createRoute({
    method: 'post',
    path: '/v1/runs/{run_id}/decisions',
    summary: 'Approve or reject exactly what was shown. The decider is the authenticated principal.',
    security,
    request: { params: RunParameters, ...body(DecideBody) },
    responses: {
      200: json('Recorded now, or by the same person before', DecidedRun),
      400: malformed,
      401: unauthenticated,
      403: problem('not_an_approver, self_approval, approvals_need_development'),
      404: problem('run_not_found, approval_not_found'),
      409: problem('already_decided (with the recorded decisions), digest_mismatch, not_awaiting_approval'),
      410: problem('approval_expired'),
      413: tooLarge,
      415: unsupported,
      503: unavailable,
    },
  }),
  cancelRun: createRoute({
    method: 'post',
    path: '/v1/runs/{run_id}/cancel',
    summary: 'Stop a run before anything is sent.',
    security,
    request: { params: RunParameters, ...body(CancelBody, false) },
    responses: {
      200: json('Rejected, with stop reason cancelled', RunStanding),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      404: notFound,
      409: problem('not_cancellable, stale_revision'),
      413: tooLarge,
      415: unsupported,
      503: unavailable,
    },
  }),
  verdict: createRoute({
    method: 'post',
    path: '/v1/runs/{run_id}/verdicts',
    summary:
      'Record what a person saw of an effect in doubt. “It landed” leads to the verifier, never straight to completed.',
    security,
    request: { params: RunParameters, ...body(VerdictBody) },
    responses: {
      200: json('Recorded', RunStanding),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      404: notFound,
      409: problem(
        'not_in_doubt, stale_revision, not_settled, evidence_stands, instance_not_fenced, second_person_needed; the detail says what is missing',
      ),
      413: tooLarge,
      415: unsupported,
      503: unavailable,
    },
  }),
  supportVerdict: createRoute({
    method: 'post',
    path: '/v1/runs/{run_id}/supports',
    summary:
      'A second person stands in for a missing fence, or confirms an observed difference. Another attempt voids it.',
    security,
    request: { params: RunParameters, ...body(SupportBody) },
    responses: {
      200: json('Recorded; the verdict itself is still to be sent, by the first person', SupportedVerdict),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      404: notFound,
      409: problem('not_in_doubt, stale_revision'),
      413: tooLarge,
      415: unsupported,
      503: unavailable,
    },
  }),
  listInstances: createRoute({
    method: 'get',
    path: '/v1/instances',
    summary: 'Process lives of the installation, newest first: which still show signs of life, which are fenced.',
    security,
    request: { query: InstancesQuery },
    responses: {
      200: json('The newest', Instances),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      503: unavailable,
    },
  }),
  fenceInstance: createRoute({
    method: 'post',
    path: '/v1/instances/{instance_id}/fence',
    summary: 'Record, with evidence, that an instance is gone, or that the credential it could send with was rotated.',
    security,
    request: { params: InstanceParameters, ...body(FenceBody) },
    responses: {
      200: json('Its end is recorded', FencedInstance),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      404: problem('instance_not_found'),
      409: problem('instance_alive; the detail says by which sign'),
      413: tooLarge,
      415: unsupported,
      503: unavailable,
    },
  }),
  listHolds: createRoute({
    method: 'get',
    path: '/v1/holds',
    summary: 'What is on hold: no dispatch of it begins until it is released.',
    security,
    responses: {
      200: json('Every hold of the installation', Holds),
      401: unauthenticated,
      403: problem('role_missing'),
      503: unavailable,
    },
  }),
  setHold: createRoute({
    method: 'put',
    path: '/v1/holds/{scope}',
    summary:
      'Hold every dispatch (scope all) or those of one connector, or replace the reason. What was sent stays sent.',
    security,
    request: { params: HoldParameters, ...body(HoldBody) },
    responses: {
      200: json('What is on hold now', Holds),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      413: tooLarge,
      415: unsupported,
      503: unavailable,
    },
  }),
  releaseHold: createRoute({
    method: 'delete',
    path: '/v1/holds/{scope}',
    summary: 'Release a hold; what waited goes on by itself, with every check of a dispatch made again.',
    security,
    request: { params: HoldParameters },
    responses: {
      200: json('What is still on hold; released is false when there was no such hold', ReleasedHold),
      400: malformed,
      401: unauthenticated,
      403: problem('role_missing'),
      503: unavailable,
    },
  }),
  health: createRoute({
    method: 'get',
    path: '/healthz',
    summary: 'The process lives.',
    responses: { 200: json('It does', Health) },
  }),
  readiness: createRoute({
    method: 'get',
    path: '/readyz',
    summary: 'The database answers within 1 s.',
    responses: { 200: json('It does', Readiness), 503: json('It does not', Readiness) },
  }),
} as const;

/** Address of the OpenAPI 3.1 document. */
export const OPENAPI_PATH = '/openapi.json';

export type RouteName = keyof typeof ROUTES;
