import type net from 'node:net';
import type { ReadHttp } from '@counterstamp/manifest-core';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { onRequest, type RawServer, rawServer, selfSigned } from './raw-server.test-support.ts';
import { createReadClient, type ReadClient } from './read.ts';

const OK = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}';
let server: RawServer | undefined;
let client: ReadClient;
beforeEach(() => {
  client = createReadClient();
});
afterEach(async () => {
  client.close();
  await server?.close();
});
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Answers every request on a connection, as a server that keeps connections does. */
function answerAll(socket: net.Socket, reply = OK): void {
  socket.on('data', () => socket.write(reply));
}
async function serve(behave: (socket: net.Socket, received: () => string, index: number) => void): Promise<string> {
  server = await rawServer(behave);
  return server.url;
}

test('reads over one kept connection', async () => {
  const url = await serve((socket) => answerAll(socket));
  for (let i = 0; i < 3; i++) {
    const reply = await client.get(url, { timeoutMs: 1_000, headers: { authorization: 'Bearer x' } });
    expect(reply).toMatchObject({ kind: 'reply', status: 200, headers: { 'content-type': 'application/json' } });
    expect(reply.kind === 'reply' && Buffer.from(reply.body).toString()).toBe('{"ok":true}');
    await sleep(5);
  }
  expect(server?.connections()).toBe(1);
  expect(server?.received()[0]?.match(/GET \/ HTTP/g)).toHaveLength(3);
});

test('fits the port of manifest-core', () => {
  const port: ReadHttp = client;
  expect(port.get).toBeTypeOf('function');
});

describe('a kept connection that the peer has closed', () => {
  test('is replaced once, and the read succeeds', async () => {
    const url = await serve((socket, _received, index) => {
      if (index > 0) return answerAll(socket);
      let requests = 0;
      socket.on('data', () => {
        requests += 1;
        if (requests === 1) socket.write(OK);
        else socket.resetAndDestroy(); // As a server does whose keep-alive ended while our request was on its way.
      });
    });
    expect(await client.get(url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'reply' });
    await sleep(5);
    expect(await client.get(url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'reply' });
    expect(server?.connections()).toBe(2);
  });

  test('is replaced once only', async () => {
    const url = await serve((socket, _received, index) => {
      socket.on('data', () => {
        if (index === 0 && server?.received()[0]?.match(/GET/g)?.length === 1) socket.write(OK);
        else socket.resetAndDestroy();
      });
    });
    expect(await client.get(url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'reply' });
    await sleep(5);
    expect(await client.get(url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'unreachable', reason: 'reset' });
    expect(server?.connections()).toBe(2);
  });

  test('is not replaced on a first use: that was no stale connection', async () => {
    const url = await serve((socket) => void socket.on('data', () => socket.resetAndDestroy()));
    expect(await client.get(url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'unreachable', reason: 'reset' });
    expect(server?.connections()).toBe(1);
  });
});

test.each<[string, string | ((socket: net.Socket) => void), string]>([
  ['closes without a word', (socket) => socket.end(), 'reset'],
  ['stops within the body', (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"ok":'), 'truncated'],
  ['speaks something else', '220 smtp ready\r\n', 'malformed'],
  ['announces too much', 'HTTP/1.1 200 OK\r\ncontent-length: 1048577\r\n\r\n', 'too_large'],
  ['hangs', () => {}, 'timeout'],
])('a peer that %s is unreachable', async (_what, behaviour, reason) => {
  const url = await serve((socket, received) =>
    onRequest(socket, received, () => {
      if (typeof behaviour === 'string') socket.write(behaviour);
      else behaviour(socket);
    }),
  );
  expect(await client.get(url, { timeoutMs: 300 })).toMatchObject({ kind: 'unreachable', reason });
});

test('a body that drips is a timeout in total', async () => {
  const url = await serve((socket) => {
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n');
    const timer = setInterval(() => socket.write('x'), 20);
    socket.on('close', () => clearInterval(timer));
  });
  const startedAt = performance.now();
  expect(await client.get(url, { timeoutMs: 300 })).toMatchObject({ kind: 'unreachable' });
  expect(performance.now() - startedAt).toBeLessThan(600);
});

test('10 MB are cut off at 1 MiB, or where the caller says', async () => {
  const url = await serve((socket, received) =>
    onRequest(socket, received, () => {
      socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n');
      for (let i = 0; i < 160; i++) socket.write(`10000\r\n${'x'.repeat(65_536)}\r\n`);
      socket.write('0\r\n\r\n');
    }),
  );
  expect(await client.get(url, { timeoutMs: 2_000 })).toMatchObject({ kind: 'unreachable', reason: 'too_large' });
  const reply = await client.get(url, { timeoutMs: 2_000, maxBytes: 10_485_760 });
  expect(reply.kind === 'reply' && reply.body.length).toBe(10_485_760);
});

test.each([301, 404, 429, 500])('a status %i is a reply', async (status) => {
  const url = await serve((socket) =>
    answerAll(socket, `HTTP/1.1 ${status} X\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n`),
  );
  expect(await client.get(url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'reply', status });
  expect(server?.received()[0]?.match(/GET/g)).toHaveLength(1);
});

test('no more connections than maxSockets; waiting for one counts', async () => {
  client.close();
  client = createReadClient({ maxSockets: 2 });
  const url = await serve((socket, received) =>
    onRequest(socket, received, () => void setTimeout(() => socket.write(OK), 200)),
  );
  const results = await Promise.all(
    Array.from({ length: 4 }, (_, i) => client.get(url, { timeoutMs: i < 2 ? 1_000 : 100 })),
  );
  expect(results.map((result) => (result.kind === 'reply' ? 'reply' : result.reason))).toEqual([
    'reply',
    'reply',
    'timeout',
    'timeout',
  ]);
  expect(server?.connections()).toBe(2);
});

test('what cannot be reached says why', async () => {
  server = await rawServer(() => {});
  const { url } = server;
  await server.close();
  expect(await client.get(url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'unreachable', reason: 'refused' });
  expect(await client.get('http://counterstamp.invalid/', { timeoutMs: 5_000 })).toMatchObject({
    kind: 'unreachable',
    reason: 'dns',
  });
  expect(await client.get('ftp://x/', { timeoutMs: 1_000 })).toMatchObject({
    kind: 'unreachable',
    reason: 'invalid_request',
  });
  expect(await client.get('nonsense', { timeoutMs: 1_000 })).toMatchObject({
    kind: 'unreachable',
    reason: 'invalid_request',
  });
  expect(await client.get(url, { timeoutMs: 1_000, headers: { x: 'a\r\nb' } })).toMatchObject({
    kind: 'unreachable',
    reason: 'invalid_request',
  });
});

test('TLS: a vouched certificate is read, another is refused', async () => {
  const pair = selfSigned();
  server = await rawServer((socket) => answerAll(socket), pair);
  expect(await client.get(server.url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'unreachable', reason: 'tls' });
  const trusting = createReadClient({ ca: pair.cert });
  for (let i = 0; i < 2; i++)
    expect(await trusting.get(server.url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'reply', status: 200 });
  trusting.close();
});

test('a signal gives up, and closing ends what is under way', async () => {
  const url = await serve(() => {});
  expect(await client.get(url, { timeoutMs: 1_000, signal: AbortSignal.abort() })).toMatchObject({
    kind: 'unreachable',
    reason: 'aborted',
  });
  const aborting = new AbortController();
  const first = client.get(url, { timeoutMs: 1_000, signal: aborting.signal });
  const second = client.get(url, { timeoutMs: 1_000 });
  await sleep(30);
  aborting.abort();
  expect(await first).toMatchObject({ kind: 'unreachable', reason: 'aborted' });
  client.close();
  expect(await second).toMatchObject({ kind: 'unreachable', reason: 'closed' });
  expect(await client.get(url, { timeoutMs: 1_000 })).toMatchObject({ kind: 'unreachable', reason: 'closed' });
});
