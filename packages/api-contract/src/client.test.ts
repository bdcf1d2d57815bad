import { ERRORS, runIdFromUuid } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { ApiUnreachable, type ClientOptions, createClient, type Fetch, ProblemError } from './index.ts';

const RUN = runIdFromUuid('0198c0de-0000-7000-8000-000000000001');
const ACCEPTED = { run_id: RUN, state: 'queued', revision: 1, generation: 1 };
const BODY = { request_id: 'case_1', input: {} };

interface Sent {
  url: string;
  init: RequestInit;
}

function clientFor(answer: Response | Error | (() => Promise<Response>), options: Partial<ClientOptions> = {}) {
  const sent: Sent[] = [];
  const fetch: Fetch = async (url, init) => {
    sent.push({ url, init });
    if (answer instanceof Error) throw answer;
    return answer instanceof Response ? answer : answer();
  };
  return { sent, client: createClient({ baseUrl: 'http://api.test/', key: 'csk_x', fetch, ...options }) };
}

function problem(change: Record<string, unknown> = {}): Response {
  const { status, title } = ERRORS.digest_mismatch;
  const body = {
    type: 'urn:x',
    title,
    status,
    code: 'digest_mismatch',
    path: '/action_digest',
    detail: 'other',
    ...change,
  };
  return new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/problem+json' } });
}

describe('the client', () => {
  test('sends the key, the body and a deadline, follows no redirect, and says whether the run is new', async () => {
    const { client, sent } = clientFor(Response.json(ACCEPTED, { status: 201 }));
    expect(await client.createRun(BODY)).toEqual({ ...ACCEPTED, created: true });
    expect(sent[0]?.url).toBe('http://api.test/v1/runs');
    expect(sent[0]?.init).toMatchObject({
      method: 'POST',
      redirect: 'error',
      headers: { authorization: 'Bearer csk_x', 'content-type': 'application/json' },
      body: JSON.stringify(BODY),
    });
    expect(sent[0]?.init.signal).toBeInstanceOf(AbortSignal);
    const again = clientFor(Response.json(ACCEPTED, { status: 200 }));
    expect((await again.client.createRun(BODY)).created).toBe(false);
  });

  test('sends the bytes of a file as they are', async () => {
    const bytes = new TextEncoder().encode('{"a":1,"a":2}');
    const { client, sent } = clientFor(problem());
    await expect(client.createRun(bytes)).rejects.toThrow(ProblemError);
    expect(sent[0]?.init.body).toBe(bytes);
  });

  test('writes ids and queries into the address', async () => {
    const { client, sent } = clientFor(async () => Response.json({ runs: [], next_cursor: null }));
    await client.listRuns();
    await client.listRuns({ state: 'failed', limit: 5, cursor: 'a+b' });
    await client.cancelRun(RUN).catch(() => undefined);
    await client.listInstances({ service: 'executor' }).catch(() => undefined);
    await client.fenceInstance('ins_1/../x', { evidence: 'gone' }).catch(() => undefined);
    expect(sent.map(({ url }) => url)).toEqual([
      'http://api.test/v1/runs',
      'http://api.test/v1/runs?state=failed&limit=5&cursor=a%2Bb',
      `http://api.test/v1/runs/${RUN}/cancel`,
      'http://api.test/v1/instances?service=executor',
      'http://api.test/v1/instances/ins_1%2F..%2Fx/fence',
    ]);
  });

  test('throws a refusal with its status, code, path and detail', async () => {
    const { client } = clientFor(problem());
    const error = await client.getRun(RUN).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ProblemError);
    expect(error).toMatchObject({ status: 409, code: 'digest_mismatch', path: '/action_digest', detail: 'other' });
    expect(String(error)).toBe('ProblemError: digest_mismatch at /action_digest: other');
  });

  test.each([
    [
      'a connection that fails',
      new TypeError('fetch failed', { cause: new Error('connect ECONNREFUSED') }),
      'ECONNREFUSED',
    ],
    ['a page of a proxy', new Response('<html>', { status: 502 }), 'answered 502'],
    ['a success of another shape', Response.json({ hello: 'world' }), 'answered 200'],
    ['a problem with a code that is not ours', problem({ code: 'teapot' }), 'answered 409'],
  ])('takes %s for no answer', async (_, answer, message) => {
    const { client } = clientFor(answer);
    const error = await client.getRun(RUN).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ApiUnreachable);
    expect(String(error)).toContain(message);
    expect(String(error)).not.toContain('csk_');
  });

  test('gives up at its deadline', async () => {
    const fetch: Fetch = (_, init) =>
      new Promise((_resolve, reject) => {
        init.signal?.addEventListener('abort', () => reject(init.signal?.reason as Error));
      });
    const client = createClient({ baseUrl: 'http://api.test', key: 'csk_x', fetch, timeoutMs: 20 });
    await expect(client.getRun(RUN)).rejects.toThrow(ApiUnreachable);
  });

  test('reads readiness also from an api that is not ready', async () => {
    const away = { ready: false, database: 'unavailable', queue: 'ok' };
    const { client } = clientFor(Response.json(away, { status: 503 }));
    expect(await client.readiness()).toEqual(away);
  });
});
