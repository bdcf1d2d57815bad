import type net from 'node:net';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type OneShotConnection, openOneShot, type SendOptions } from './one-shot.ts';
import { onRequest, type RawServer, rawServer, selfSigned } from './raw-server.test-support.ts';

const BODY = Buffer.from('{"amount_minor":4200,"note":"é"}');
const OK = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}';

let server: RawServer | undefined;
afterEach(async () => {
  await server?.close();
  server = undefined;
});

async function open(
  url: string,
  over: {
    bodyLength?: number;
    ca?: string;
    connectTimeoutMs?: number;
    signal?: AbortSignal;
    headers?: Record<string, string>;
  } = {},
) {
  const { bodyLength = BODY.length, headers = {}, connectTimeoutMs = 2_000, ...rest } = over;
  return openOneShot(
    {
      method: 'POST',
      url,
      headers: { 'content-type': 'application/json', 'idempotency-key': 'k1', ...headers },
      bodyLength,
    },
    { connectTimeoutMs, ...rest },
  );
}
async function opened(...args: Parameters<typeof open>): Promise<OneShotConnection> {
  const result = await open(...args);
  if (result.kind !== 'open') throw new Error(`not open: ${result.reason} ${result.detail}`);
  return result.connection;
}
const sendOptions = (over: Partial<SendOptions> = {}): SendOptions => ({
  storedBytes: BODY,
  mayStillSend: () => true,
  timeoutMs: 1_000,
  maxBytes: 100_000,
  ...over,
});
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** A server that answers each whole request with `reply`, or does with the socket what it likes. */
async function serve(reply: string | ((socket: net.Socket) => void)): Promise<RawServer> {
  server = await rawServer((socket, received) => {
    onRequest(socket, received, () => {
      if (typeof reply === 'string') socket.write(reply, 'latin1');
      else reply(socket);
    });
  });
  return server;
}

describe('opening', () => {
  test('connects and lets no byte leave before send, then sends exactly one request and closes', async () => {
    const { url, received, connections } = await serve(OK);
    const connection = await opened(url);
    await sleep(150);
    expect(received()).toEqual(['']);
    expect(connection.destroyed).toBe(false);
    const reply = await connection.send(BODY, sendOptions());
    expect(reply).toMatchObject({
      kind: 'reply',
      status: 200,
      headers: { 'content-type': 'application/json', 'content-length': '11' },
    });
    expect(reply.kind === 'reply' && Buffer.from(reply.body).toString()).toBe('{"ok":true}');
    await sleep(50);
    expect(connections()).toBe(1);
    const [request = ''] = received();
    expect(request.startsWith('POST / HTTP/1.1\r\n')).toBe(true);
    expect(request.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(request.toLowerCase()).toContain('connection: close\r\n');
    expect(request.toLowerCase()).not.toContain('transfer-encoding');
    expect(Buffer.from(request.slice(request.indexOf('\r\n\r\n') + 4), 'latin1')).toEqual(BODY);
    expect(connection.destroyed).toBe(true);
  });

  test('to a closed port is not_sent, refused', async () => {
    const { url } = await serve(OK);
    await server?.close();
    expect(await open(url)).toMatchObject({ kind: 'not_sent', reason: 'refused' });
  });

  test('to a name that does not exist is not_sent, dns', async () => {
    expect(await open('http://counterstamp.invalid/')).toMatchObject({ kind: 'not_sent', reason: 'dns' });
  });

  test('to an address that swallows packets is not_sent after the time limit', async () => {
    // A listener whose backlog is full would do too; a handshake that never comes is the same to the caller.
    server = await rawServer(() => {});
    const startedAt = performance.now();
    expect(await open(server.url.replace('http:', 'https:'), { connectTimeoutMs: 200 })).toMatchObject({
      kind: 'not_sent',
      reason: 'connect_timeout',
    });
    expect(performance.now() - startedAt).toBeLessThan(600);
    await sleep(20);
  });

  test('TLS with a peer that does not speak it is not_sent, tls', async () => {
    server = await rawServer((socket) => socket.end('SSH-2.0-OpenSSH\r\n'));
    expect(await open(server.url.replace('http:', 'https:'))).toMatchObject({ kind: 'not_sent', reason: 'tls' });
  });

  test('is given up by its signal, before and while connecting', async () => {
    server = await rawServer(() => {});
    expect(await open(server.url, { signal: AbortSignal.abort() })).toMatchObject({
      kind: 'not_sent',
      reason: 'aborted',
    });
    const aborting = new AbortController();
    const opening = open(server.url.replace('http:', 'https:'), { signal: aborting.signal });
    setTimeout(() => aborting.abort(), 50);
    expect(await opening).toMatchObject({ kind: 'not_sent', reason: 'aborted' });
  });

  test.each([
    ['expect', '100-continue'],
    ['Transfer-Encoding', 'chunked'],
    ['Content-Length', '3'],
    ['connection', 'keep-alive'],
    ['x-note', 'a\r\nhost: elsewhere'],
    ['bad name', 'x'],
  ])('with the header %s: %j is not_sent, invalid_request', async (name, value) => {
    const { url, connections } = await serve(OK);
    expect(await open(url, { headers: { [name]: value } })).toMatchObject({
      kind: 'not_sent',
      reason: 'invalid_request',
    });
    expect(connections()).toBe(0);
  });

  test.each(['ftp://127.0.0.1/', 'not a url', ''])('of %j is not_sent, invalid_request', async (url) => {
    expect(await open(url)).toMatchObject({ kind: 'not_sent', reason: 'invalid_request' });
  });
});

describe('not sending', () => {
  test('when the last check says no: nothing leaves', async () => {
    const { url, received } = await serve(OK);
    const connection = await opened(url);
    expect(await connection.send(BODY, sendOptions({ mayStillSend: () => false }))).toMatchObject({
      kind: 'not_sent',
      reason: 'late',
    });
    await sleep(50);
    expect(received()).toEqual(['']);
    expect(connection.destroyed).toBe(true);
  });

  test('when the last check throws: it is passed on and nothing leaves', async () => {
    const { url, received } = await serve(OK);
    const connection = await opened(url);
    const mayStillSend = () => {
      throw new Error('clock broken');
    };
    expect(() => connection.send(BODY, sendOptions({ mayStillSend }))).toThrow('clock broken');
    await sleep(50);
    expect(received()).toEqual(['']);
  });

  test.each([
    ['one other byte', Buffer.from('{"amount_minor":9200,"note":"é"}'), BODY],
    ['other stored bytes', BODY, Buffer.from('{"amount_minor":9200,"note":"é"}')],
    ['another length', BODY.subarray(1), BODY.subarray(1)],
    ['nothing', Buffer.alloc(0), Buffer.alloc(0)],
  ])('when the body is %s: bytes_differ, and the last check is not even asked', async (_what, bytes, storedBytes) => {
    const { url, received } = await serve(OK);
    const connection = await opened(url);
    let asked = 0;
    const result = await connection.send(bytes, sendOptions({ storedBytes, mayStillSend: () => ++asked > 0 }));
    expect(result).toMatchObject({ kind: 'not_sent', reason: 'bytes_differ' });
    await sleep(50);
    expect(received()).toEqual(['']);
    expect(asked).toBe(0);
  });

  test.each<[string, (socket: net.Socket) => void]>([
    ['closed', (socket) => socket.end()],
    ['reset', (socket) => socket.resetAndDestroy()],
    ['sent an answer to nothing', (socket) => socket.end('HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n')],
    [
      'sent an answer to nothing and stayed',
      (socket) => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'),
    ],
    ['sent garbage', (socket) => void socket.write('220 smtp ready\r\n')],
  ])('when the peer has %s meanwhile: destroyed', async (_what, behave) => {
    server = await rawServer((socket) => void setTimeout(() => behave(socket), 30));
    const connection = await opened(server.url);
    await sleep(120);
    expect(connection.destroyed).toBe(true);
    let asked = 0;
    expect(await connection.send(BODY, sendOptions({ mayStillSend: () => ++asked > 0 }))).toMatchObject({
      kind: 'not_sent',
      reason: 'destroyed',
    });
    expect(server.received()).toEqual(['']);
    expect(asked).toBe(0);
  });

  test('after close or abort: destroyed', async () => {
    const { url, received } = await serve(OK);
    const closed = await opened(url);
    closed.close();
    closed.close();
    expect(closed.destroyed).toBe(true);
    expect(await closed.send(BODY, sendOptions())).toMatchObject({ kind: 'not_sent', reason: 'destroyed' });
    const aborting = new AbortController();
    const aborted = await opened(url, { signal: aborting.signal });
    aborting.abort();
    expect(await aborted.send(BODY, sendOptions())).toMatchObject({
      kind: 'not_sent',
      reason: 'destroyed',
      detail: 'given up',
    });
    await sleep(30);
    expect(received()).toEqual(['', '']);
  });

  test('twice: the second call throws, whatever the first brought', async () => {
    const { url, received } = await serve(OK);
    const connection = await opened(url);
    const first = connection.send(BODY, sendOptions());
    expect(() => connection.send(BODY, sendOptions())).toThrow('a one-shot connection sends once');
    expect(await first).toMatchObject({ kind: 'reply' });
    expect(() => connection.send(BODY, sendOptions())).toThrow('a one-shot connection sends once');
    expect(received()).toHaveLength(1);
  });
});

describe('after the write', () => {
  test('order: last check, write, onSend, all before send returns; what onSend throws is ignored', async () => {
    const { url } = await serve(OK);
    const connection = await opened(url);
    const order: string[] = [];
    const sending = connection.send(
      BODY,
      sendOptions({
        mayStillSend: () => order.push('check') > 0,
        onSend: () => {
          order.push('sent');
          throw new Error('failpoint');
        },
      }),
    );
    order.push('returned');
    expect(order).toEqual(['check', 'sent', 'returned']);
    expect(await sending).toMatchObject({ kind: 'reply', status: 200 });
  });

  test.each<[string, string | ((socket: net.Socket) => void), string]>([
    ['closes without a word', (socket) => socket.end(), 'reset'],
    ['resets', (socket) => socket.resetAndDestroy(), 'reset'],
    ['stops within the headers', (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-le'), 'truncated'],
    [
      'stops within the body',
      (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"ok":'),
      'truncated',
    ],
    [
      'resets within the body',
      (socket) => {
        socket.write('HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"ok":');
        setTimeout(() => socket.resetAndDestroy(), 50);
      },
      'truncated',
    ],
    [
      'stops within a chunk',
      (socket) => socket.end('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n{"ok":'),
      'truncated',
    ],
    [
      'stops before the last chunk',
      (socket) => socket.end('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n'),
      'truncated',
    ],
    ['speaks something else', '220 smtp ready\r\n', 'malformed'],
    ['sends two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}', 'malformed'],
    [
      'switches protocols',
      'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
      'malformed',
    ],
    ['announces too much', 'HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n', 'too_large'],
    ['sends too many headers', `HTTP/1.1 200 OK\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`, 'too_large'],
  ])('a peer that %s is no_reply and is asked once', async (_what, behaviour, reason) => {
    const { url, connections, received } = await serve(behaviour);
    const connection = await opened(url);
    expect(await connection.send(BODY, sendOptions())).toMatchObject({ kind: 'no_reply', reason });
    await sleep(50);
    expect(connections()).toBe(1);
    expect(received()[0]?.match(/POST/g)).toHaveLength(1);
  });

  test('10 MB are cut off at the limit', async () => {
    const { url } = await serve((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n`);
      for (let i = 0; i < 160; i++) socket.write(`10000\r\n${'x'.repeat(65_536)}\r\n`);
      socket.end('0\r\n\r\n');
    });
    const connection = await opened(url);
    expect(await connection.send(BODY, sendOptions())).toMatchObject({ kind: 'no_reply', reason: 'too_large' });
  });

  test('10 MB arrive whole under a larger limit', async () => {
    const { url } = await serve((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: 10485760\r\n\r\n`);
      for (let i = 0; i < 160; i++) socket.write('x'.repeat(65_536));
    });
    const connection = await opened(url);
    const reply = await connection.send(BODY, sendOptions({ maxBytes: 10_485_760 }));
    expect(reply.kind === 'reply' && reply.body.length).toBe(10_485_760);
  });

  test.each<[string, (socket: net.Socket) => void]>([
    ['hangs', () => {}],
    ['drips headers', (socket) => drip(socket, 'HTTP/1.1 200 OK\r\nx: ')],
    ['drips a body', (socket) => drip(socket, 'HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n')],
    ['sends 100s for ever', (socket) => drip(socket, '', 'HTTP/1.1 100 Continue\r\n\r\n')],
  ])('a peer that %s is a timeout in total, counted from the send', async (_what, behave) => {
    const { url } = await serve(behave);
    const connection = await opened(url);
    await sleep(200);
    const startedAt = performance.now();
    expect(await connection.send(BODY, sendOptions({ timeoutMs: 300 }))).toMatchObject({
      kind: 'no_reply',
      reason: 'timeout',
    });
    const ms = performance.now() - startedAt;
    expect(ms).toBeGreaterThan(290);
    expect(ms).toBeLessThan(600);
  });

  test('giving up by signal or close while waiting is no_reply, aborted', async () => {
    const { url } = await serve(() => {});
    const aborting = new AbortController();
    const connection = await opened(url, { signal: aborting.signal });
    const sending = connection.send(BODY, sendOptions());
    setTimeout(() => aborting.abort(), 30);
    expect(await sending).toMatchObject({ kind: 'no_reply', reason: 'aborted' });
    const second = await opened(url);
    const waiting = second.send(BODY, sendOptions());
    second.close();
    expect(await waiting).toMatchObject({ kind: 'no_reply', reason: 'aborted' });
  });

  test.each([301, 302, 307, 308, 401, 409, 425, 429, 500, 503])(
    'a status %i is a reply: not followed, not retried',
    async (status) => {
      const { url, connections, received } = await serve(
        `HTTP/1.1 ${status} X\r\nlocation: /elsewhere\r\nretry-after: 0\r\ncontent-length: 2\r\n\r\n{}`,
      );
      const connection = await opened(url);
      expect(await connection.send(BODY, sendOptions())).toMatchObject({ kind: 'reply', status });
      await sleep(30);
      expect(connections()).toBe(1);
      expect(received()[0]?.match(/POST/g)).toHaveLength(1);
    },
  );

  test('a reply on a connection that the peer keeps open, with bytes behind it, is that reply and the connection is closed', async () => {
    let ended = false;
    const { url } = await serve((socket) => {
      socket.on('end', () => {
        ended = true;
      });
      socket.on('close', () => {
        ended = true;
      });
      socket.write(
        `${OK.replace('\r\n\r\n', '\r\nconnection: keep-alive\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\r\n')}HTTP/1.1 500 X\r\n\r\n`,
      );
    });
    const connection = await opened(url);
    expect(await connection.send(BODY, sendOptions())).toMatchObject({
      kind: 'reply',
      status: 200,
      headers: { 'set-cookie': 'a=1, b=2' },
    });
    await expect.poll(() => ended).toBe(true);
  });

  test('a reply that ends by closing, without a length, is a reply', async () => {
    const { url } = await serve((socket) => socket.end('HTTP/1.0 200 OK\r\n\r\nhello'));
    const connection = await opened(url);
    const reply = await connection.send(BODY, sendOptions());
    expect(reply.kind === 'reply' && Buffer.from(reply.body).toString()).toBe('hello');
  });

  test('an empty body is sent as such', async () => {
    const { url, received } = await serve(OK);
    const connection = await opened(url, { bodyLength: 0 });
    const empty = new Uint8Array(0);
    expect(await connection.send(empty, sendOptions({ storedBytes: empty }))).toMatchObject({ kind: 'reply' });
    expect(received()[0]?.toLowerCase()).toContain('content-length: 0\r\n');
  });

  test('100 requests to a peer that resets at random points reach it at most once each', async () => {
    let n = 0;
    const seen = new Map<string, number>();
    server = await rawServer((socket, received) => {
      const kind = n++ % 4;
      if (kind === 0) setTimeout(() => socket.resetAndDestroy(), 1);
      onRequest(socket, received, () => {
        const key = /idempotency-key: (\S+)/.exec(received())?.[1] ?? '?';
        seen.set(key, (seen.get(key) ?? 0) + 1);
        if (kind === 1) socket.resetAndDestroy();
        else if (kind === 2) socket.end('HTTP/1.1 200');
        else socket.write(OK);
      });
    });
    const outcomes = await Promise.all(
      Array.from({ length: 100 }, async (_, i) => {
        const result = await open(server?.url ?? '', { headers: { 'idempotency-key': `k${i}` } });
        if (result.kind !== 'open') return { i, kind: result.kind };
        const { kind } = await result.connection.send(BODY, sendOptions());
        return { i, kind };
      }),
    );
    expect(n).toBe(100);
    const arrivals = (wanted: string) =>
      new Set(outcomes.filter(({ kind }) => kind === wanted).map(({ i }) => seen.get(`k${i}`) ?? 0));
    expect(Math.max(...seen.values())).toBe(1);
    expect(arrivals('reply')).toEqual(new Set([1]));
    expect(arrivals('not_sent').has(1)).toBe(false);
  });
});

/** Writes `more` every 20 ms until the socket is gone. */
function drip(socket: net.Socket, first: string, more = 'x'): void {
  socket.write(first);
  const timer = setInterval(() => socket.write(more), 20);
  socket.on('close', () => clearInterval(timer));
}

describe('the write itself', () => {
  // The peer runs in another thread and counts into shared memory; after `send` this thread blocks and never returns to
  // its event loop. What the peer counts has therefore left within `send`.
  const PEER = `
    const { parentPort, workerData } = require('node:worker_threads');
    const cells = new Int32Array(workerData.shared);
    const onSocket = (socket) => {
      socket.on('error', () => {});
      socket.on('data', (chunk) => { Atomics.add(cells, 0, chunk.length); Atomics.notify(cells, 0); });
      Atomics.add(cells, 1, 1);
    };
    const server = workerData.secure ? require('node:tls').createServer(workerData.secure, onSocket) : require('node:net').createServer(onSocket);
    server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));`;
  let pair: { key: string; cert: string };
  beforeAll(() => {
    pair = selfSigned();
  });

  test.each(['http', 'https'] as const)(
    'over %s no byte leaves before send, and all of them within it',
    async (scheme) => {
      const shared = new SharedArrayBuffer(8);
      const cells = new Int32Array(shared);
      const peer = new Worker(PEER, {
        eval: true,
        workerData: { shared, secure: scheme === 'https' ? pair : undefined },
      });
      const port = await new Promise<number>((resolve) => peer.once('message', resolve));
      const connection = await opened(`${scheme}://127.0.0.1:${port}/`, { ca: pair.cert });
      await sleep(200);
      expect(Atomics.load(cells, 1)).toBe(1);
      expect(Atomics.load(cells, 0)).toBe(0);
      let arrived = 0;
      const sending = connection.send(
        BODY,
        sendOptions({
          onSend: () => {
            // Until the peer has counted nothing new for 300 ms.
            while (Atomics.wait(cells, 0, arrived, 300) !== 'timed-out') arrived = Atomics.load(cells, 0);
          },
        }),
      );
      expect(arrived).toBeGreaterThan(BODY.length + 100);
      connection.close();
      expect(await sending).toMatchObject({ kind: 'no_reply', reason: 'aborted' });
      // Nothing more came afterwards.
      await sleep(50);
      expect(Atomics.load(cells, 0)).toBe(arrived);
      await peer.terminate();
    },
  );

  test('TLS with a certificate that nobody vouches for is not_sent, tls', async () => {
    server = await rawServer(() => {}, pair);
    expect(await open(server.url)).toMatchObject({ kind: 'not_sent', reason: 'tls' });
    expect(server.received()).toEqual([]);
  });

  test('TLS for another name is not_sent, tls', async () => {
    server = await rawServer(() => {}, pair);
    expect(await open(server.url.replace('127.0.0.1', 'localhost'), { ca: pair.cert })).toMatchObject({
      kind: 'not_sent',
      reason: 'tls',
    });
  });

  test('a reply over TLS is a reply', async () => {
    server = await rawServer((socket, received) => onRequest(socket, received, () => void socket.write(OK)), pair);
    const connection = await opened(server.url, { ca: pair.cert });
    expect(await connection.send(BODY, sendOptions())).toMatchObject({ kind: 'reply', status: 200 });
  });
});
