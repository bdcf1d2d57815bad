import type { RunId } from '@counterstamp/manifest-core';
import type { z } from 'zod';
import {
  Alarms,
  ApprovalCard,
  CreatedRun,
  CreationOptions,
  DecidedRun,
  DecisionChallenge,
  EndedSession,
  FencedInstance,
  Holds,
  Instances,
  Passkeys,
  ProposedRun,
  Readiness,
  ReleasedHold,
  RequestOptions,
  RunEvents,
  RunPage,
  RunStanding,
  RunView,
  SessionView,
  SignedEnvelope,
  SupportedVerdict,
} from './answers.ts';
import type {
  AddPasskeyBody,
  CancelBody,
  CreateRunBody,
  DecideBody,
  DecisionChallengeBody,
  EnrolmentBody,
  EnrolmentOptionsBody,
  FenceBody,
  HoldBody,
  PasskeyAnswerBody,
  ProposeBody,
  SupportBody,
  VerdictBody,
} from './bodies.ts';
import type { InstancesQuery, ListQuery, ReceiptQuery } from './parameters.ts';
import { PROBLEM_MEDIA_TYPE, Problem, ProblemError } from './problem.ts';
import { ROUTES } from './routes.ts';

/** Milliseconds for one request. Above the api's own statement timeout of 10 s, so that its answer is the one that is heard. */
const TIMEOUT_MS = 15_000;

/** The part of `fetch` that the client needs. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface ClientOptions {
  /** `http://host:port`, without a path. */
  baseUrl: string;
  /** `csk_…`; sent as a bearer token, never logged. Absent for a signed-in person, whose browser sends the session's cookie. */
  key?: string | undefined;
  /** What each request carries beside that: for a signed-in person `x-csrf-token`, and outside a browser `cookie` and `origin` too. */
  headers?: () => Readonly<Record<string, string>>;
  fetch: Fetch;
  /** Milliseconds for one request, from connecting to the last byte of the answer; default 15 000. */
  timeoutMs?: number;
}

/** No answer within the time, or one that is not ours. Whether a command was carried out is unknown: repeat it unchanged. */
export class ApiUnreachable extends Error {
  override readonly name = 'ApiUnreachable';
}

/** A file's bytes go out as they are: parsing them here would settle what the api has to refuse. */
type Body<T> = T | Uint8Array<ArrayBuffer>;

/**
 * The api as typed calls. Every call may throw:
 * @throws {ProblemError} the api refused, with its code, path and detail.
 * @throws {ApiUnreachable} there is no answer, or it is not the api's.
 */
export interface ApiClient {
  /** `created` is false when the same request had made the run before. */
  createRun(body: Body<CreateRunBody>): Promise<CreatedRun & { created: boolean }>;
  getRun(run_id: RunId): Promise<RunView>;
  listRuns(query?: { state?: ListQuery['state']; limit?: number; cursor?: string }): Promise<RunPage>;
  /** What an approver has to see before a decision. */
  approvalCard(run_id: RunId): Promise<ApprovalCard>;
  runEvents(run_id: RunId): Promise<RunEvents>;
  receipt(run_id: RunId, query?: ReceiptQuery): Promise<SignedEnvelope>;
  propose(run_id: RunId, body: Body<ProposeBody>): Promise<ProposedRun>;
  decide(run_id: RunId, body: Body<DecideBody>): Promise<DecidedRun>;
  /** What a passkey has to sign for a decision; for signed-in people, as everything below that names a session or a passkey. */
  decisionChallenge(run_id: RunId, body: Body<DecisionChallengeBody>): Promise<DecisionChallenge>;
  /** Whom an invitation is for, and what their authenticator is asked. */
  enrolmentOptions(body: EnrolmentOptionsBody): Promise<CreationOptions>;
  /** Uses the invitation up and signs in. */
  enrol(body: EnrolmentBody): Promise<SessionView>;
  signInOptions(): Promise<RequestOptions>;
  signIn(body: PasskeyAnswerBody): Promise<SessionView>;
  readSession(): Promise<SessionView>;
  signOut(): Promise<EndedSession>;
  stepUpOptions(): Promise<RequestOptions>;
  /** Proves again who one is. */
  stepUp(body: PasskeyAnswerBody): Promise<SessionView>;
  listPasskeys(): Promise<Passkeys>;
  passkeyOptions(): Promise<CreationOptions>;
  addPasskey(body: AddPasskeyBody): Promise<Passkeys>;
  revokePasskey(credential_id: string): Promise<Passkeys>;
  cancelRun(run_id: RunId, body?: Body<CancelBody>): Promise<RunStanding>;
  /** What a person saw of an effect in doubt. */
  verdict(run_id: RunId, body: Body<VerdictBody>): Promise<RunStanding>;
  /** What a second person adds to another's verdict. */
  supportVerdict(run_id: RunId, body: Body<SupportBody>): Promise<SupportedVerdict>;
  /** Process lives, newest first. */
  listInstances(query?: { service?: InstancesQuery['service']; limit?: number }): Promise<Instances>;
  fenceInstance(instance_id: string, body: Body<FenceBody>): Promise<FencedInstance>;
  /** Newest first. `after`: the alarm that the page before ended with. */
  listAlarms(query?: { after?: number; limit?: number }): Promise<Alarms>;
  /** Everything that is on hold. */
  listHolds(): Promise<Holds>;
  /** `scope`: `all`, or the name of a connector. */
  setHold(scope: string, body: Body<HoldBody>): Promise<Holds>;
  releaseHold(scope: string): Promise<ReleasedHold>;
  /** Also when the api is not ready. */
  readiness(): Promise<Readiness>;
}

/** Makes a client. It opens nothing by itself and keeps no state. */
export function createClient(options: ClientOptions): ApiClient {
  const { key, timeoutMs = TIMEOUT_MS } = options;
  const baseUrl = options.baseUrl.replace(/\/+$/, '');

  async function call<T>(
    route: { method: string; path: string },
    schema: z.ZodType<T>,
    request: {
      run_id?: RunId;
      scope?: string;
      instance_id?: string;
      credential_id?: string;
      query?: URLSearchParams;
      body?: unknown;
      accept?: readonly number[];
    } = {},
  ): Promise<{ status: number; body: T }> {
    const query = request.query === undefined || request.query.size === 0 ? '' : `?${request.query.toString()}`;
    const path = route.path
      .replace('{run_id}', encodeURIComponent(request.run_id ?? ''))
      .replace('{scope}', encodeURIComponent(request.scope ?? ''))
      .replace('{instance_id}', encodeURIComponent(request.instance_id ?? ''))
      .replace('{credential_id}', encodeURIComponent(request.credential_id ?? ''));
    const url = `${baseUrl}${path}${query}`;
    const { status, type, text } = await exchange(url, route.method.toUpperCase(), request.body);
    const value = parseJson(text);
    if (type.startsWith(PROBLEM_MEDIA_TYPE)) {
      const problem = Problem.safeParse(value);
      if (problem.success) throw new ProblemError(problem.data);
    } else if ((status >= 200 && status < 300) || request.accept?.includes(status) === true) {
      const parsed = schema.safeParse(value);
      if (parsed.success) return { status, body: parsed.data };
    }
    throw new ApiUnreachable(`${route.method.toUpperCase()} ${url} answered ${status} in a form that is not the api's`);
  }

  async function exchange(
    url: string,
    method: string,
    body: unknown,
  ): Promise<{ status: number; type: string; text: string }> {
    const headers: Record<string, string> = { accept: 'application/json', ...options.headers?.() };
    if (key !== undefined) headers.authorization = `Bearer ${key}`;
    if (body !== undefined) headers['content-type'] = 'application/json';
    try {
      const response = await options.fetch(url, {
        method,
        headers,
        redirect: 'error', // A key must not follow a redirect to somewhere else.
        signal: AbortSignal.timeout(timeoutMs),
        ...(body === undefined
          ? {}
          : { body: body instanceof Uint8Array ? (body as Uint8Array<ArrayBuffer>) : JSON.stringify(body) }),
      });
      return {
        status: response.status,
        type: response.headers.get('content-type') ?? '',
        text: await response.text(),
      };
    } catch (error) {
      throw new ApiUnreachable(`${method} ${url} had no answer: ${reasonOf(error)}`, { cause: error });
    }
  }

  return {
    async createRun(body) {
      const answer = await call(ROUTES.createRun, CreatedRun, { body });
      return { ...answer.body, created: answer.status === 201 };
    },
    getRun: async (run_id) => (await call(ROUTES.getRun, RunView, { run_id })).body,
    listRuns: async (query = {}) => (await call(ROUTES.listRuns, RunPage, { query: parametersOf(query) })).body,
    approvalCard: async (run_id) => (await call(ROUTES.approvalCard, ApprovalCard, { run_id })).body,
    runEvents: async (run_id) => (await call(ROUTES.runEvents, RunEvents, { run_id })).body,
    receipt: async (run_id, query = {}) =>
      (await call(ROUTES.receipt, SignedEnvelope, { run_id, query: parametersOf(query) })).body,
    propose: async (run_id, body) => (await call(ROUTES.propose, ProposedRun, { run_id, body })).body,
    decide: async (run_id, body) => (await call(ROUTES.decide, DecidedRun, { run_id, body })).body,
    decisionChallenge: async (run_id, body) =>
      (await call(ROUTES.decisionChallenge, DecisionChallenge, { run_id, body })).body,
    enrolmentOptions: async (body) => (await call(ROUTES.enrolmentOptions, CreationOptions, { body })).body,
    enrol: async (body) => (await call(ROUTES.enrol, SessionView, { body })).body,
    signInOptions: async () => (await call(ROUTES.signInOptions, RequestOptions, { body: {} })).body,
    signIn: async (body) => (await call(ROUTES.signIn, SessionView, { body })).body,
    readSession: async () => (await call(ROUTES.readSession, SessionView)).body,
    signOut: async () => (await call(ROUTES.signOut, EndedSession)).body,
    stepUpOptions: async () => (await call(ROUTES.stepUpOptions, RequestOptions, { body: {} })).body,
    stepUp: async (body) => (await call(ROUTES.stepUp, SessionView, { body })).body,
    listPasskeys: async () => (await call(ROUTES.listPasskeys, Passkeys)).body,
    passkeyOptions: async () => (await call(ROUTES.passkeyOptions, CreationOptions, { body: {} })).body,
    addPasskey: async (body) => (await call(ROUTES.addPasskey, Passkeys, { body })).body,
    revokePasskey: async (credential_id) => (await call(ROUTES.revokePasskey, Passkeys, { credential_id })).body,
    cancelRun: async (run_id, body = {}) => (await call(ROUTES.cancelRun, RunStanding, { run_id, body })).body,
    verdict: async (run_id, body) => (await call(ROUTES.verdict, RunStanding, { run_id, body })).body,
    supportVerdict: async (run_id, body) =>
      (await call(ROUTES.supportVerdict, SupportedVerdict, { run_id, body })).body,
    listInstances: async (query = {}) =>
      (await call(ROUTES.listInstances, Instances, { query: parametersOf(query) })).body,
    fenceInstance: async (instance_id, body) =>
      (await call(ROUTES.fenceInstance, FencedInstance, { instance_id, body })).body,
    listAlarms: async (query = {}) => (await call(ROUTES.listAlarms, Alarms, { query: parametersOf(query) })).body,
    listHolds: async () => (await call(ROUTES.listHolds, Holds)).body,
    setHold: async (scope, body) => (await call(ROUTES.setHold, Holds, { scope, body })).body,
    releaseHold: async (scope) => (await call(ROUTES.releaseHold, ReleasedHold, { scope })).body,
    readiness: async () => (await call(ROUTES.readiness, Readiness, { accept: [503] })).body,
  };
}

/** What is given of a query, as it stands in an address. */
function parametersOf(query: Readonly<Record<string, string | number | undefined>>): URLSearchParams {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, String(value));
  return parameters;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** `fetch` hides the reason in the cause. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause;
  return cause instanceof Error && cause.message !== '' ? `${error.message} (${cause.message})` : error.message;
}
