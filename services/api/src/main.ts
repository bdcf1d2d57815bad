import { randomBytes } from 'node:crypto';
import { createIdentityStore } from '@counterstamp/manifest-store';
import { createApiStore } from '@counterstamp/manifest-store/api';
import { type Environment, runService, startBeating } from '@counterstamp/stage-runtime';
import { type WorkflowDoor as Door, WORKFLOW_DOORS } from '@counterstamp/workflows';
import { Hono } from 'hono';
import { type Bindings, createApp } from './app.ts';
import { parseConfig } from './config.ts';
import { listen } from './listen.ts';
import { meteredApiStore } from './metered-api-store.ts';
import { createOidc } from './oidc.ts';
import { loadPasskeys } from './passkey-ceremonies.ts';
import type { WorkflowDoor } from './workflow-door.ts';

/** Runs the api until it is told to end: HTTP in, commands and reads out. It decides nothing. */
export async function runApi(env: Environment): Promise<void> {
  await runService(
    parseConfig,
    async (shell) => {
      const { config, clock, metrics, queue } = shell;
      const store = meteredApiStore(createApiStore(shell.sql, { sealing: config.sealing }), metrics);
      const api = createApp({
        store,
        identities: createIdentityStore(shell.sql),
        signIn: config.signIn === undefined ? undefined : { ...config.signIn, random: randomBytes },
        ...(config.oidc === undefined || config.signIn === undefined
          ? {}
          : { oidc: createOidc(config.oidc, config.signIn.origin, () => clock.wallMs()) }),
        queue: shell.hints,
        ids: shell.ids,
        clock,
        failpoint: shell.failpoint,
        workflows: new Map([...WORKFLOW_DOORS.values()].map((door) => [door.name, doorOf(door)])),
        durations: config.durations,
        limits: config.limits,
        rates: {
          per_principal: config.own.COUNTERSTAMP_RATE_PER_PRINCIPAL,
          per_tenant: config.own.COUNTERSTAMP_RATE_PER_TENANT,
          unauthenticated: config.own.COUNTERSTAMP_RATE_UNAUTHENTICATED,
        },
        operating_tenant: config.own.COUNTERSTAMP_OPERATING_TENANT,
        development: config.development,
        log: shell.log,
        observe: ({ duration_ms, ...request }) => metrics.httpRequest({ ...request, ms: duration_ms }),
        rateLimited: (limiter) => metrics.rateLimited(limiter),
        alarm: (code) => metrics.alarm(code),
        pingQueue: () => queue.ping(),
      });
      const app = new Hono<{ Bindings: Bindings }>()
        .get('/metrics', async (c) => c.text(await metrics.text(), 200, { 'content-type': metrics.contentType }))
        .all('*', (c) => api.fetch(c.req.raw, c.env));
      if (config.signIn !== undefined) await loadPasskeys();
      const server = await listen(app.fetch, { host: config.http_host, port: config.http_port });
      const beats = startBeating(shell, () => store.beat(shell.instance_id, shell.process));
      return {
        port: server.port,
        async drain(graceMs) {
          await Promise.all([beats.stop(), Promise.race([server.close(), clock.sleep(graceMs)])]);
          await Promise.race([api.drain(), clock.sleep(graceMs)]);
        },
      };
    },
    env,
  );
}

/** The api's view of a workflow: names instead of contracts. */
function doorOf(door: Door): WorkflowDoor {
  const { name, version, contract, operations, visibilityMs, input, proposal } = door;
  return {
    name,
    version,
    connector: { name: contract.name, version: contract.version },
    operations: Object.keys(operations),
    visibilityMs,
    input,
    proposal,
    checkInput: (value) => door.checkInput(value),
  };
}
