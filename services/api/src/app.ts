import { KEY_SCHEME, OPENAPI_PATH, ROUTES } from '@counterstamp/api-contract';
import { ERRORS, RunId } from '@counterstamp/manifest-core';
import { NotPermitted, type Principal, StoreUnavailable } from '@counterstamp/manifest-store';
import { OpenAPIHono, type RouteConfig } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { type Action, authenticate, may } from './authentication.ts';
import { cancelRun } from './cancel-run.ts';
import type { Answer, Call } from './command.ts';
import { createRun } from './create-run.ts';
import { decide } from './decisions.ts';
import type { ApiDeps } from './deps.ts';
import { HEALTH, readiness } from './health.ts';
import { createHints } from './hints.ts';
import { listHolds, releaseHold, setHold } from './holds.ts';
import { fenceInstance, listInstances } from './instances.ts';
import { problemResponse, type Refused, refused } from './problem.ts';
import { propose } from './proposals.ts';
import { getRun, listRuns, runEvents } from './runs.ts';
import { traceparentOf } from './traceparent.ts';
import { supportVerdict, verdict } from './verdicts.ts';

/** Characters of a path that an audit event keeps: it may hold a member's name, which a caller makes as long as they like. */
const AUDIT_PATH_MAX = 200;

const METHODS: readonly string[] = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE'];

interface Env {
  Variables: { route?: string };
}
type Route = RouteConfig & { getRoutingPath(): string };

/** The api over HTTP, as `@hono/node-server` serves it. */
export interface Api {
  fetch(request: Request): Response | Promise<Response>;
  /** Resolves when every hint of the commits so far was sent or given up: at most 1 s each. Call it when no request is left. */
  drain(): Promise<void>;
}

/**
 * Builds the api on its ports: commands and reads in, decisions by nobody. It keeps no state but hints under way, so that any number of
 * them serve one database.
 */
export function createApp(deps: ApiDeps): Api {
  const app = new OpenAPIHono<Env>();
  const hints = createHints(deps);
  const taken = new Map<string, { label: string; methods: string[] }>();

  app.use(async (c, next) => {
    const startedAt = deps.clock.monotonicMs();
    await next();
    c.header('x-content-type-options', 'nosniff');
    c.header('cache-control', 'no-store');
    deps.observe?.({
      route: c.get('route') ?? 'unmatched',
      method: METHODS.includes(c.req.method) ? c.req.method : 'other',
      status: c.res.status,
      duration_ms: deps.clock.monotonicMs() - startedAt,
    });
  });
  app.notFound(() => problemResponse(refused('route_not_found')));
  app.onError((error, c) => {
    if (error instanceof StoreUnavailable) {
      deps.log.warn({ err: error, route: c.get('route') }, 'the database does not answer');
      return problemResponse(refused('store_unavailable'));
    }
    // Disabled between the check of its key and the commit.
    if (error instanceof NotPermitted) return problemResponse(refused('unauthenticated'));
    const trace_id = traceparentOf(c.req.raw)?.split('-')[1] ?? deps.ids.uuid().replaceAll('-', '');
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

  /** A route for principals with a role. `command`: its refusals are tries that the audit keeps. */
  function mountFor<T>(
    route: Route,
    action: Action,
    command: boolean,
    perform: (call: Call) => Promise<Answer<T>>,
  ): void {
    mount(route, async (c) => {
      const who = await authenticate(deps.store, c.req.header('authorization'));
      if (who === undefined) return problemResponse(refused('unauthenticated'));
      const parameters = c.req.param();
      const answer = may(who.role, action)
        ? await perform({ deps, hints, who, request: c.req.raw, parameters })
        : refused(action === 'decide' ? 'not_an_approver' : 'role_missing', '', {
            detail: `the key's role is ${who.role}`,
          });
      if (answer.kind === 'answered') return c.json(answer.body, answer.status, answer.headers);
      if (command && leavesTrace(answer)) await audit(who, action, parameters, answer);
      return problemResponse(answer);
    });
  }

  async function audit(who: Principal, action: Action, parameters: Call['parameters'], answer: Refused): Promise<void> {
    const run_id = RunId.safeParse(parameters.run_id);
    await deps.store.audit({
      tenant_id: who.tenant_id,
      principal_id: who.principal_id,
      run_id: run_id.success ? run_id.data : null,
      what: action,
      code: answer.code,
      // Half of a surrogate pair, cut at the limit, could not be stored.
      detail: { role: who.role, path: answer.path.slice(0, AUDIT_PATH_MAX).toWellFormed() },
    });
  }

  mountFor(ROUTES.createRun, 'create_run', true, createRun);
  mountFor(ROUTES.listRuns, 'list_runs', false, listRuns);
  mountFor(ROUTES.getRun, 'get_run', false, getRun);
  mountFor(ROUTES.runEvents, 'run_events', false, runEvents);
  mountFor(ROUTES.propose, 'propose', true, propose);
  mountFor(ROUTES.decide, 'decide', true, decide);
  mountFor(ROUTES.cancelRun, 'cancel_run', true, cancelRun);
  mountFor(ROUTES.verdict, 'verdict', true, verdict);
  mountFor(ROUTES.supportVerdict, 'support_verdict', true, supportVerdict);
  mountFor(ROUTES.listInstances, 'list_instances', false, listInstances);
  mountFor(ROUTES.fenceInstance, 'fence_instance', true, fenceInstance);
  mountFor(ROUTES.listHolds, 'list_holds', false, listHolds);
  mountFor(ROUTES.setHold, 'set_hold', true, setHold);
  mountFor(ROUTES.releaseHold, 'release_hold', true, releaseHold);
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

  return { fetch: (request) => app.fetch(request), drain: () => hints.settled() };
}

/**
 * Whether a refused command is a try that somebody may ask about later: it reached for what it may not do, came too late, or carried a
 * member it has no business to send (`approved`, `decided_by`). A mere fault of form leaves nothing behind.
 */
function leavesTrace({ code, audited }: Refused): boolean {
  if (audited === true) return false;
  return code === 'unknown_member' || [403, 404, 409, 410].includes(ERRORS[code].status);
}

function openApiDocument(app: OpenAPIHono<Env>): string {
  app.openAPIRegistry.registerComponent('securitySchemes', KEY_SCHEME, {
    type: 'http',
    scheme: 'bearer',
    description: 'A key made by `counterstamp key create`: csk_…',
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
