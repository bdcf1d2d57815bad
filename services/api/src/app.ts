import { KEY_SCHEME, OPENAPI_PATH, ROUTES, SESSION_SCHEME } from '@counterstamp/api-contract';
import { ERRORS, RunId } from '@counterstamp/manifest-core';
import { NotPermitted, StoreUnavailable } from '@counterstamp/manifest-store';
import { currentTraceId, inServerSpan } from '@counterstamp/telemetry';
import { OpenAPIHono, type RouteConfig } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { secureHeaders } from 'hono/secure-headers';
import { listAlarms } from './alarms.ts';
import { authenticate } from './authentication.ts';
import { type Action, type Caller, may } from './caller.ts';
import { cancelRun } from './cancel-run.ts';
import type { Answer, Call, OpenCall, SessionCall } from './command.ts';
import { createRun } from './create-run.ts';
import { decisionChallenge } from './decision-challenge.ts';
import { decide } from './decisions.ts';
import type { ApiDeps } from './deps.ts';
import { enrol, enrolmentOptions } from './enrolment.ts';
import { HEALTH, readiness } from './health.ts';
import { createHints } from './hints.ts';
import { listHolds, releaseHold, setHold } from './holds.ts';
import { fenceInstance, listInstances } from './instances.ts';
import { type OidcCall, oidcCallback, oidcLogin } from './oidc.ts';
import { addPasskey, listPasskeys, passkeyOptions, revokePasskey } from './passkeys.ts';
import { problemResponse, type Refused, refused } from './problem.ts';
import { propose } from './proposals.ts';
import { createRateGate } from './rate-limits.ts';
import { listCheckpoints, publicKeys, receipt } from './receipts.ts';
import { getApprovalCard, getRun, listRuns, runEvents } from './runs.ts';
import { isFromOrigin, isHttps } from './session-cookie.ts';
import { readSession, signInByPasskey, signInOptions, signOut, stepUp, stepUpOptions } from './session-routes.ts';
import { traceparentOf } from './traceparent.ts';
import { supportVerdict, verdict } from './verdicts.ts';

/** Characters of a path that an audit event keeps: it may hold a member's name, which a caller makes as long as they like. */
const AUDIT_PATH_MAX = 200;

/** Seconds for which browsers keep to https: two years, as the preload lists ask. */
const HSTS_S = 63_072_000;

/** Asked every few seconds by whatever runs the process: no work of anybody's, and so not traced. */
const PROBES: readonly string[] = [ROUTES.health.path, ROUTES.readiness.path];

const METHODS: readonly string[] = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE'];

/** What the server says beside a request: the socket that it came by; nothing, where a test calls without a server. */
export interface Bindings {
  incoming?: { socket: { remoteAddress?: string | undefined } };
}

interface Env {
  Bindings: Bindings;
  Variables: { route?: string };
}
type Route = RouteConfig & { getRoutingPath(): string };

/** The api over HTTP, as `@hono/node-server` serves it. */
export interface Api {
  fetch(request: Request, bindings?: Bindings): Response | Promise<Response>;
  /** Resolves when every hint of the commits so far was sent or given up: at most 1 s each. Call it when no request is left. */
  drain(): Promise<void>;
}

/**
 * Builds the api on its ports: commands and reads in, decisions by nobody. It keeps no state but hints under way and counts of requests,
 * so that any number of them serve one database.
 */
export function createApp(deps: ApiDeps): Api {
  const app = new OpenAPIHono<Env>();
  const hints = createHints(deps);
  const rates = createRateGate(deps.rates, deps.log, deps.rateLimited);
  const taken = new Map<string, { label: string; methods: string[] }>();

  app.use(async (c, next) => {
    const startedAt = deps.clock.monotonicMs();
    const method = METHODS.includes(c.req.method) ? c.req.method : 'other';
    if (PROBES.includes(c.req.path)) await next();
    else
      await inServerSpan(traceparentOf(c.req.raw), method, async (span) => {
        await next();
        const route = c.get('route');
        if (route !== undefined) span.name(`${method} ${route}`);
        span.set({ 'http.route': route, 'http.response.status_code': c.res.status });
      });
    c.header('cache-control', 'no-store');
    deps.observe?.({
      route: c.get('route') ?? 'unmatched',
      method,
      status: c.res.status,
      duration_ms: deps.clock.monotonicMs() - startedAt,
    });
  });
  app.use(
    secureHeaders({
      // An answer is data: it may load nothing, and no page may frame it.
      contentSecurityPolicy: {
        defaultSrc: ["'none'"],
        baseUri: ["'none'"],
        frameAncestors: ["'none'"],
        formAction: ["'none'"],
      },
      xFrameOptions: 'DENY',
      referrerPolicy: 'no-referrer',
      crossOriginResourcePolicy: 'same-origin',
      strictTransportSecurity:
        deps.signIn !== undefined && isHttps(deps.signIn.origin) ? `max-age=${HSTS_S}; includeSubDomains` : false,
    }),
  );
  app.notFound(() => problemResponse(refused('route_not_found')));
  app.onError((error, c) => {
    if (error instanceof StoreUnavailable) {
      deps.log.warn({ err: error, route: c.get('route') }, 'the database does not answer');
      return problemResponse(refused('store_unavailable'));
    }
    // Disabled between the check of its key and the commit.
    if (error instanceof NotPermitted) return problemResponse(refused('unauthenticated'));
    const trace_id = currentTraceId() ?? traceparentOf(c.req.raw)?.split('-')[1] ?? deps.ids.uuid().replaceAll('-', '');
    deps.log.error({ err: error, trace_id, route: c.get('route'), method: c.req.method }, 'a request failed');
    return problemResponse(refused('internal_error', '', { trace_id }));
  });

  function mount(route: Route, handler: (c: Context<Env>) => Promise<Response> | Response): void {
    // Documented here and routed beside it: `app.openapi` would parse the body leniently before our gate saw it.
    app.openAPIRegistry.registerPath(route);
    serve(route.method.toUpperCase(), route.getRoutingPath(), route.path, handler);
  }

  function serve(
    method: string,
    path: string,
    label: string,
    handler: (c: Context<Env>) => Promise<Response> | Response,
  ): void {
    const methods = [...(taken.get(path)?.methods ?? []), ...(method === 'GET' ? ['GET', 'HEAD'] : [method])];
    taken.set(path, { label, methods });
    app.on([method], [path], (c) => {
      c.set('route', label);
      return handler(c);
    });
  }

  function respond<T>(c: Context<Env>, answer: Answer<T>): Response {
    return answer.kind === 'answered' ? c.json(answer.body, answer.status, answer.headers) : problemResponse(answer);
  }

  /** Who asks, once their credential holds and they do not ask too often. */
  async function admitted(c: Context<Env>): Promise<Caller | Refused> {
    const who = await authenticate(deps, c.req.raw);
    return (await ('kind' in who ? rates.admitUnknown(addressOf(c)) : rates.admit(who))) ?? who;
  }

  /** A route for whoever has a credential. `command`: its refusals are tries that the audit keeps. */
  function mountKnown<T>(
    route: Route,
    action: string,
    command: boolean,
    perform: (call: Call) => Promise<Answer<T>>,
  ): void {
    mount(route, async (c) => {
      const who = await admitted(c);
      if ('kind' in who) return problemResponse(who);
      const parameters = c.req.param();
      const answer = await perform({ deps, hints, who, request: c.req.raw, parameters });
      if (answer.kind === 'refused' && command && leavesTrace(answer)) await audit(who, action, parameters, answer);
      return respond(c, answer);
    });
  }

  /** A route for principals with a role. */
  function mountFor<T>(
    route: Route,
    action: Action,
    command: boolean,
    perform: (call: Call) => Promise<Answer<T>>,
  ): void {
    const code = action === 'decide' ? 'not_an_approver' : 'role_missing';
    mountKnown<T>(route, action, command, async (call) =>
      may(call.who, action) ? await perform(call) : refused(code, '', { detail: rolesOf(call.who) }),
    );
  }

  /** A route for signed-in people, whatever their roles: what it does is about themselves, or judged further on. */
  function mountForSession<T>(
    route: Route,
    action: string,
    command: boolean,
    perform: (call: SessionCall) => Promise<Answer<T>>,
  ): void {
    const { signIn } = deps;
    mountKnown<T>(route, action, command, async (call) =>
      call.who.via === 'session' && signIn !== undefined
        ? await perform({ ...call, who: call.who, signIn })
        : refused('session_required'),
    );
  }

  /** A route on which people enrol and sign in: nobody is known yet, but the page has to be ours. */
  function mountOpen<T>(route: Route, perform: (call: OpenCall) => Promise<Answer<T>>): void {
    const { signIn } = deps;
    mount(route, async (c) => {
      if (signIn === undefined) return problemResponse(refused('sign_in_unavailable'));
      const tooOften = await rates.admitUnknown(addressOf(c));
      if (tooOften !== undefined) return problemResponse(tooOften);
      if (!isFromOrigin(c.req.raw, signIn.origin)) return problemResponse(refused('csrf_refused'));
      return respond(c, await perform({ deps, signIn, request: c.req.raw }));
    });
  }

  /** A route by which a browser goes to the identity provider and comes back: for people, so that it answers with pages and redirects. */
  function mountOidc(route: Route, perform: (call: OidcCall) => Promise<Response>): void {
    mount(route, async (c) => {
      const tooOften = await rates.admitUnknown(addressOf(c));
      if (tooOften !== undefined) return problemResponse(tooOften);
      const { signIn, oidc } = deps;
      if (signIn === undefined || oidc === undefined) return problemResponse(refused('route_not_found'));
      return await perform({ deps, signIn, oidc, request: c.req.raw });
    });
  }

  async function audit(who: Caller, action: string, parameters: Call['parameters'], answer: Refused): Promise<void> {
    const run_id = RunId.safeParse(parameters.run_id);
    await deps.store.audit({
      tenant_id: who.tenant_id,
      principal_id: who.principal_id,
      run_id: run_id.success ? run_id.data : null,
      what: action,
      code: answer.code,
      // Half of a surrogate pair, cut at the limit, could not be stored.
      detail: { via: who.via, roles: [...who.roles], path: answer.path.slice(0, AUDIT_PATH_MAX).toWellFormed() },
    });
  }

  mountFor(ROUTES.createRun, 'create_run', true, createRun);
  mountFor(ROUTES.listRuns, 'list_runs', false, listRuns);
  mountFor(ROUTES.getRun, 'get_run', false, getRun);
  mountFor(ROUTES.approvalCard, 'approval_card', false, getApprovalCard);
  mountFor(ROUTES.runEvents, 'run_events', false, runEvents);
  mountFor(ROUTES.receipt, 'receipt', false, receipt);
  mountFor(ROUTES.checkpoints, 'list_checkpoints', false, listCheckpoints);
  mountFor(ROUTES.propose, 'propose', true, propose);
  mountFor(ROUTES.decide, 'decide', true, decide);
  mountForSession(ROUTES.decisionChallenge, 'decision_challenge', true, decisionChallenge);
  mountFor(ROUTES.cancelRun, 'cancel_run', true, cancelRun);
  mountFor(ROUTES.verdict, 'verdict', true, verdict);
  mountFor(ROUTES.supportVerdict, 'support_verdict', true, supportVerdict);
  mountFor(ROUTES.listInstances, 'list_instances', false, listInstances);
  mountFor(ROUTES.fenceInstance, 'fence_instance', true, fenceInstance);
  mountFor(ROUTES.listAlarms, 'list_alarms', false, listAlarms);
  mountFor(ROUTES.listHolds, 'list_holds', false, listHolds);
  mountFor(ROUTES.setHold, 'set_hold', true, setHold);
  mountFor(ROUTES.releaseHold, 'release_hold', true, releaseHold);
  mountOpen(ROUTES.enrolmentOptions, enrolmentOptions);
  mountOpen(ROUTES.enrol, enrol);
  mountOpen(ROUTES.signInOptions, signInOptions);
  mountOpen(ROUTES.signIn, signInByPasskey);
  mountOidc(ROUTES.oidcLogin, oidcLogin);
  mountOidc(ROUTES.oidcCallback, oidcCallback);
  mountForSession(ROUTES.readSession, 'read_session', false, readSession);
  mountForSession(ROUTES.signOut, 'sign_out', true, signOut);
  mountForSession(ROUTES.stepUpOptions, 'step_up_options', true, stepUpOptions);
  mountForSession(ROUTES.stepUp, 'step_up', true, stepUp);
  mountForSession(ROUTES.listPasskeys, 'list_passkeys', false, listPasskeys);
  mountForSession(ROUTES.passkeyOptions, 'passkey_options', true, passkeyOptions);
  mountForSession(ROUTES.addPasskey, 'enrol_passkey', true, addPasskey);
  mountForSession(ROUTES.revokePasskey, 'revoke_passkey', true, revokePasskey);
  mount(ROUTES.keys, async (c) => {
    const tooOften = await rates.admitUnknown(addressOf(c));
    return tooOften === undefined ? respond(c, publicKeys(deps)) : problemResponse(tooOften);
  });
  mount(ROUTES.health, (c) => c.json(HEALTH));
  mount(ROUTES.readiness, async (c) => {
    const state = await readiness(deps);
    return c.json(state, state.ready ? 200 : 503);
  });

  const document = openApiDocument(app);
  serve('GET', OPENAPI_PATH, OPENAPI_PATH, (c) => c.body(document, 200, { 'content-type': 'application/json' }));
  for (const [path, { label, methods }] of taken) {
    app.all(path, (c) => {
      c.set('route', label);
      return problemResponse(refused('method_not_allowed', '', { allow: methods.join(', ') }));
    });
  }

  return { fetch: (request, bindings) => app.fetch(request, bindings), drain: () => hints.settled() };
}

/**
 * Whether a refused command is a try that somebody may ask about later: it reached for what it may not do, came too late, or carried a
 * member it has no business to send (`approved`, `decided_by`). A mere fault of form leaves nothing behind.
 */
function leavesTrace({ code, audited }: Refused): boolean {
  if (audited === true) return false;
  return code === 'unknown_member' || [403, 404, 409, 410].includes(ERRORS[code].status);
}

/** Address of the socket that a request came by. */
function addressOf(c: Context<Env>): string | undefined {
  return c.env?.incoming?.socket.remoteAddress;
}

/** The roles that were not enough, in words. */
function rolesOf(who: Caller): string {
  if (who.via === 'key') return `the key's role is ${who.roles.join(', ')}`;
  return who.roles.length === 0 ? 'the person has no role' : `the person's roles are ${who.roles.join(', ')}`;
}

function openApiDocument(app: OpenAPIHono<Env>): string {
  app.openAPIRegistry.registerComponent('securitySchemes', KEY_SCHEME, {
    type: 'http',
    scheme: 'bearer',
    description: 'A key made by `counterstamp key create`: csk_…',
  });
  app.openAPIRegistry.registerComponent('securitySchemes', SESSION_SCHEME, {
    type: 'apiKey',
    in: 'cookie',
    name: '__Host-cs_session',
    description:
      'A signed-in person. Whatever changes something also needs the header x-csrf-token and our own Origin.',
  });
  return JSON.stringify(
    app.getOpenAPI31Document({
      openapi: '3.1.0',
      info: {
        title: 'Counterstamp',
        version: '1',
        description:
          'Agents ask for an action, a person stamps its exact bytes, a fleet performs it once and proves the result. ' +
          'Money is in ISO 4217 minor units as JSON integers. Refusals are problem+json with a stable code and a place.',
      },
    }),
  );
}
