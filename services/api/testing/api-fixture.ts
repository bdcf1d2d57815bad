import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import {
  type ApiClient,
  type CreatedRun,
  createClient,
  type DecidedRun,
  type Problem,
  type RunView,
} from '@counterstamp/api-contract';
import {
  CurrencyCode,
  canonicalJson,
  ExternalId,
  type HotRow,
  Json,
  type JsonObject,
  LIMITS,
  MinorUnits,
  PROFILES,
  type RunId,
  type Stage,
} from '@counterstamp/manifest-core';
import { createIdentityStore } from '@counterstamp/manifest-store';
import { createApiStore } from '@counterstamp/manifest-store/api';
import {
  generateSigningKey,
  parseSigningKey,
  parseTrustedKeys,
  publicJwk,
  trustedKeysText,
} from '@counterstamp/signatures';
import { serve } from '@hono/node-server';
import { z } from 'zod';
import { ORIGIN } from '../../../testing/browser.ts';
import { evidenceDraft, type StoreFixture, storeFixture, testIds } from '../../../testing/store-fixture.ts';
import {
  type Api,
  type ApiDeps,
  createApp,
  type ObservedRequest,
  type SignIn,
  type WorkflowDoor,
} from '../src/index.ts';
import { DEFAULT_RATE_LIMITS } from '../src/rate-limits.ts';

/** Free-form members may hold this many bytes of canonical text. */
const METADATA_MAX = 4_096;

const Metadata = z
  .record(z.string(), Json)
  .refine((value) => Buffer.byteLength(canonicalJson(value)) <= METADATA_MAX, 'value_too_large');
const Reason = z.string().min(1).max(500);

/** A door like the refund workflow's. */
export const refundDoor: WorkflowDoor = {
  name: 'refund',
  version: 1,
  connector: { name: 'sandbox-payments', version: '1' },
  operations: ['read_order', 'refund_order', 'read_refund_status'],
  visibilityMs: 1_000,
  input: z.strictObject({
    order_id: ExternalId,
    requested_amount_minor: MinorUnits,
    currency: CurrencyCode,
    reason: Reason,
    metadata: Metadata.optional(),
  }) as unknown as z.ZodType<JsonObject>,
  proposal: z.strictObject({
    operation: z.literal('refund_order'),
    order_id: ExternalId,
    amount_minor: MinorUnits,
    currency: CurrencyCode,
    reason: Reason,
    destination: z.string().optional(),
    evidence_refs: z.array(z.string()).optional(),
    metadata: Metadata.optional(),
    explanation: z.string().optional(),
  }) as unknown as z.ZodType<JsonObject>,
  checkInput: (input) =>
    input.currency === 'XXX'
      ? { code: 'currency_unsupported', path: '/currency', detail: 'the connector does not carry XXX' }
      : undefined,
};

export const INPUT = {
  order_id: 'order_913',
  requested_amount_minor: 4200,
  currency: 'USD',
  reason: 'item arrived damaged',
};
export const PROPOSAL = {
  operation: 'refund_order',
  order_id: 'order_913',
  amount_minor: 4200,
  currency: 'USD',
  reason: 'damaged',
};

/** Whatever an answer may hold: a test reads the members that it expects and asserts on them. */
type AnyBody = Problem & CreatedRun & DecidedRun & RunView;

export interface Reply {
  status: number;
  headers: Headers;
  body: AnyBody;
}
export interface SentHint {
  stage: Stage;
  run_id: RunId;
  revision: number;
}
export interface RunningApi {
  url: string;
  api: Api;
  hints: SentHint[];
  observed: ObservedRequest[];
  logged: { level: string; fields: Record<string, unknown>; message: string }[];
  /** Sends a body as it is: text or bytes raw, anything else as JSON. */
  post(path: string, key: string | undefined, body?: unknown, headers?: Record<string, string>): Promise<Reply>;
  get(path: string, key?: string): Promise<Reply>;
  client(key: string): ApiClient;
}

/** Sign-in and receipts with a key of their own, and a set that lists no other. */
export function testSignIn(): SignIn {
  const key = parseSigningKey(generateSigningKey());
  const keys = parseTrustedKeys(trustedKeysText([publicJwk(key, ['credential', 'receipt'])]));
  return { origin: ORIGIN, key, keys, random: randomBytes };
}

/** A migrated database, and as many apis over real HTTP as a test wants. */
export interface ApiFixture {
  store: StoreFixture;
  /** What all apis of the fixture sign people in with. */
  signIn: SignIn;
  start(change?: Partial<ApiDeps>): Promise<RunningApi>;
  /** Rows of `cs.run`. */
  runCount(): Promise<number>;
  audits(): Promise<{ what: string; code: string; principal_id: string; run_id: string | null; detail: JsonObject }[]>;
  /** The run's steering columns now, as `StoreFixture.move` wants them. */
  row(run_id: RunId): Promise<HotRow>;
  /** From queued to collecting with complete evidence. */
  toCollected(run_id: RunId): Promise<HotRow>;
  close(): Promise<void>;
}

export async function apiFixture(): Promise<ApiFixture> {
  const store = await storeFixture(18);
  const signIn = testSignIn();
  const closers: (() => Promise<void>)[] = [];

  async function row(run_id: RunId): Promise<HotRow> {
    const loaded = await store.stores.preflight.load(run_id);
    if (loaded === undefined) throw new Error('no such run');
    return { ...loaded.manifest, tenant_in_line: 1 };
  }

  return {
    store,
    signIn,
    row,
    async start(change = {}) {
      const hints: SentHint[] = [];
      const observed: ObservedRequest[] = [];
      const logged: RunningApi['logged'] = [];
      const log = (level: string) => (fields: Record<string, unknown>, message: string) => {
        logged.push({ level, fields, message });
      };
      const api = createApp({
        store: createApiStore(store.serviceSql.api),
        identities: createIdentityStore(store.serviceSql.api),
        signIn,
        queue: {
          hint: async (stage, hint) => {
            hints.push({ stage, ...hint });
          },
        },
        ids: testIds,
        clock: {
          monotonicMs: () => performance.now(),
          after(ms, callback) {
            const timer = setTimeout(callback, ms);
            return () => clearTimeout(timer);
          },
        },
        failpoint: { reach: async () => undefined, reachSync: () => undefined },
        workflows: new Map([[refundDoor.name, refundDoor]]),
        durations: PROFILES.fast,
        limits: LIMITS,
        rates: DEFAULT_RATE_LIMITS,
        development: true,
        log: { info: log('info'), warn: log('warn'), error: log('error') },
        observe: (request) => observed.push(request),
        ...change,
      });
      const server = serve({ fetch: api.fetch, port: 0, hostname: '127.0.0.1' });
      await once(server, 'listening');
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      closers.push(async () => {
        if ('closeAllConnections' in server) server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
        await api.drain();
      });

      async function exchange(path: string, init: RequestInit): Promise<Reply> {
        const response = await fetch(`${url}${path}`, init);
        const text = await response.text();
        return {
          status: response.status,
          headers: response.headers,
          body: JSON.parse(text === '' ? 'null' : text) as AnyBody,
        };
      }
      const bearer = (key: string | undefined): Record<string, string> =>
        key === undefined ? {} : { authorization: `Bearer ${key}` };
      return {
        url,
        api,
        hints,
        observed,
        logged,
        post: (path, key, body, headers = {}) =>
          exchange(path, {
            method: 'POST',
            headers: {
              ...bearer(key),
              ...(body === undefined ? {} : { 'content-type': 'application/json' }),
              ...headers,
            },
            ...(body === undefined ? {} : { body: raw(body) }),
          }),
        get: (path, key) => exchange(path, { headers: bearer(key) }),
        client: (key) => createClient({ baseUrl: url, key, fetch }),
      };
    },
    async runCount() {
      const [counted] = await store.owner<{ count: number }[]>`select count(*)::int as count from cs.run`;
      return counted?.count ?? -1;
    },
    audits: async () =>
      await store.owner`select what, code, principal_id, run_id, detail from cs.audit_event order by audit_id`,
    async toCollected(run_id) {
      let now = await store.move('preflight', await row(run_id), 'request_loaded', 'preflight');
      now = await store.move('preflight', now, 'checks_passed', 'collecting');
      return await store.move('preflight', now, 'evidence_recorded', 'collecting', {
        evidence: [evidenceDraft('order_record', { refundable: 4200 })],
        evidence_complete: true,
      });
    },
    async close() {
      for (const close of closers) await close();
      await store.close();
    },
  };
}

function raw(body: unknown): string | Uint8Array<ArrayBuffer> {
  if (typeof body === 'string') return body;
  return body instanceof Uint8Array ? new Uint8Array(body) : JSON.stringify(body);
}

let made = 0;
/** A valid create body with a request id of its own. */
export function createBody(change: Record<string, unknown> = {}): Record<string, unknown> {
  return { request_id: `case_${process.pid}_${++made}`, input: INPUT, ...change };
}
