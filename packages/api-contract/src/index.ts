export {
  CreatedRun,
  DecidedRun,
  FencedInstance,
  Guard,
  Health,
  Hold,
  Holds,
  Instance,
  Instances,
  ProposedRun,
  Readiness,
  RecordedDecision,
  ReleasedHold,
  RunEvent,
  RunEvents,
  RunPage,
  RunStanding,
  RunSummary,
  RunView,
  SupportedVerdict,
} from './answers.ts';
export {
  BODY_BYTES_MAX,
  CancelBody,
  CreateRunBody,
  DecideBody,
  FenceBody,
  HoldBody,
  ObservedEffect,
  ProposeBody,
  SupportBody,
  VerdictBody,
} from './bodies.ts';
export { type ApiClient, ApiUnreachable, type ClientOptions, createClient, type Fetch } from './client.ts';
export {
  HOLD_SCOPE_ALL,
  HoldParameters,
  InstanceParameters,
  InstancesQuery,
  ListQuery,
  RunParameters,
} from './parameters.ts';
export { PROBLEM_MEDIA_TYPE, Problem, ProblemError } from './problem.ts';
export { KEY_SCHEME, OPENAPI_PATH, ROUTES, type RouteName } from './routes.ts';
