import http from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { type HttpTimers, systemHttpTimers } from '../ports/http-timers.ts';
import { brokenBy, detailOf, type HttpReply, isDnsError, readReply } from './reply.ts';

export type { HttpReply } from './reply.ts';

export interface OneShotRequest {
  method: string;
  url: string;
  /** Without the headers that frame a request or choose how it is sent (`FRAMING`). */
  headers: Readonly<Record<string, string>>;
  /** Bytes of the body, announced as content-length. */
  bodyLength: number;
}

export interface OpenOptions {
  /** Milliseconds for name look-up, TCP and TLS together. */
  connectTimeoutMs: number;
  /** Gives up: before the send for certain, afterwards with an unknown outcome. */
  signal?: AbortSignal;
  /** PEM of an authority to trust instead of the usual ones. */
  ca?: string;
  timers?: HttpTimers;
}

/** Certain: no byte of the request left this process. */
export interface NotSent {
  kind: 'not_sent';
  reason:
    | 'refused'
    | 'dns'
    | 'connect_timeout'
    | 'tls'
    | 'aborted'
    | 'invalid_request'
    | 'destroyed'
    | 'late'
    | 'bytes_differ';
  detail: string;
}

/** Uncertain: bytes left, and no whole reply came back. */
export interface NoReply {
  kind: 'no_reply';
  reason: 'timeout' | 'reset' | 'truncated' | 'too_large' | 'malformed' | 'aborted';
  detail: string;
}

export interface SendOptions {
  /** The bytes that the attempt's row holds; the body must equal them. */
  storedBytes: Uint8Array;
  /** The last check (protocol rule 5e), asked right before the write. A throw counts as a bug: nothing is sent and it is passed on. */
  mayStillSend: () => boolean;
  /** Milliseconds from the write to the end of the reply, however slowly it drips. */
  timeoutMs: number;
  /** Largest body of a reply. */
  maxBytes: number;
  /** Called synchronously right after the write. What it throws is ignored: the outcome of the request matters more. */
  onSend?: () => void;
}

/** One connected, unused connection. At most one request ever leaves through it. */
export interface OneShotConnection {
  /** Whether the connection can no longer carry the request: closed here, by the peer, or used. */
  readonly destroyed: boolean;
  /**
   * Sends the request once. Synchronous up to and including the write: when it returns, all bytes have been handed to the
   * system or none ever will. After the write nothing is thrown: every fault is a value. No retry, no redirect, no reuse.
   * @throws {Error} on a second call: a bug that must not be mistaken for an outcome.
   */
  send(bytes: Uint8Array, options: SendOptions): Promise<HttpReply | NotSent | NoReply>;
  /** Drops the connection. Before `send`: nothing leaves. While waiting for a reply: `no_reply`, aborted. */
  close(): void;
}

/**
 * Headers that a caller may not set: they would frame the body differently from the stored bytes, make node send early
 * (`expect`), or keep the connection.
 */
const FRAMING = new Set([
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Opens a connection and waits until it is connected (TLS: until the handshake is done and the certificate accepted). No
 * byte of the request leaves yet: node writes headers and body together in `end()`, and synchronously (tried; undici and
 * a kept-alive agent write later). Never rejects.
 */
export function openOneShot(
  request: OneShotRequest,
  options: OpenOptions,
): Promise<{ kind: 'open'; connection: OneShotConnection } | NotSent> {
  const { signal, timers = systemHttpTimers } = options;
  if (signal?.aborted === true) return Promise.resolve(notSent('aborted', 'given up before connecting'));
  const prepared = prepare(request, options.ca);
  if (prepared.kind === 'not_sent') return Promise.resolve(prepared);
  const { client, secure } = prepared;

  return new Promise((resolve) => {
    let phase: 'connecting' | 'open' | 'sent' | 'over' = 'connecting';
    let socket: Socket | undefined;
    let tcpConnected = false;
    let cancelTimer = (): void => {};
    let finishSend: (result: HttpReply | NoReply) => void = () => {};
    let lostBecause = 'closed here';
    let maxBytes = 0;
    let bytesReadBefore = 0;

    const drop = (): void => {
      phase = 'over';
      cancelTimer();
      signal?.removeEventListener('abort', onAbort);
      client.destroy();
      socket?.destroy();
    };
    const fail = (reason: NotSent['reason'], detail: string): void => {
      if (phase !== 'connecting') return;
      drop();
      resolve(notSent(reason, detail));
    };
    const finish = (result: HttpReply | NoReply): void => {
      if (phase !== 'sent') return;
      drop();
      finishSend(result);
    };
    /** The connection ended by itself; what that means depends on whether the request had left. */
    const lost = (error: Error | undefined): void => {
      const detail = error === undefined ? 'the peer closed the connection' : detailOf(error);
      if (phase === 'connecting') fail(whyUnconnected(error, secure && tcpConnected), detail);
      else if (phase === 'open') {
        lostBecause = detail;
        drop();
      } else if (phase === 'sent') {
        const answered = (socket?.bytesRead ?? 0) > bytesReadBefore;
        finish({ kind: 'no_reply', reason: (error && brokenBy(error)) ?? (answered ? 'truncated' : 'reset'), detail });
      }
    };
    const onAbort = (): void => {
      fail('aborted', 'given up while connecting');
      if (phase === 'open') {
        lostBecause = 'given up';
        drop();
      }
      finish({ kind: 'no_reply', reason: 'aborted', detail: 'given up while waiting for the reply' });
    };

    cancelTimer = timers.after(options.connectTimeoutMs, () => {
      fail('connect_timeout', `not connected after ${options.connectTimeoutMs} ms`);
    });
    signal?.addEventListener('abort', onAbort, { once: true });
    client.on('error', lost);
    client.on('close', () => lost(undefined));
    client.on('upgrade', (_message, upgraded: Socket) => {
      upgraded.destroy();
      finish({ kind: 'no_reply', reason: 'malformed', detail: 'the peer switched protocols' });
    });
    client.on('response', (message) => {
      if (phase !== 'sent') {
        // An answer to nothing: whatever this peer says next cannot be matched to our request.
        lostBecause = 'the peer answered before the request was sent';
        drop();
        return;
      }
      readReply(message, maxBytes, (result) => {
        finish(result.kind === 'reply' ? result : { kind: 'no_reply', reason: result.reason, detail: result.detail });
      });
    });

    const connection: OneShotConnection = {
      get destroyed() {
        return phase !== 'open' || client.destroyed || socket?.destroyed !== false || !socket.writable;
      },
      send: (bytes, sendOptions) => send(bytes, sendOptions),
      close: () => {
        if (phase === 'sent')
          finish({ kind: 'no_reply', reason: 'aborted', detail: 'closed while waiting for the reply' });
        else if (phase === 'open') drop();
      },
    };

    let used = false;
    function send(bytes: Uint8Array, sendOptions: SendOptions): Promise<HttpReply | NotSent | NoReply> {
      if (used) throw new Error('a one-shot connection sends once');
      used = true;
      if (connection.destroyed) {
        drop();
        return Promise.resolve(notSent('destroyed', lostBecause));
      }
      if (
        bytes.length !== request.bodyLength ||
        !Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).equals(sendOptions.storedBytes)
      ) {
        drop();
        return Promise.resolve(notSent('bytes_differ', 'the body is not the stored bytes'));
      }
      maxBytes = sendOptions.maxBytes;
      bytesReadBefore = socket?.bytesRead ?? 0;
      const outcome = new Promise<HttpReply | NoReply>((resolveSend) => {
        finishSend = resolveSend;
      });
      if (!stillAllowed(sendOptions.mayStillSend, drop)) {
        drop();
        return Promise.resolve(notSent('late', 'the time to send had passed'));
      }
      try {
        client.end(bytes);
      } catch (error) {
        // Node refuses a body before it writes any of it, but that is its word only: bytes may have left.
        drop();
        return Promise.resolve({
          kind: 'no_reply',
          reason: 'reset',
          detail: error instanceof Error ? detailOf(error) : String(error),
        });
      }
      phase = 'sent';
      cancelTimer = timers.after(sendOptions.timeoutMs, () => {
        finish({ kind: 'no_reply', reason: 'timeout', detail: `no whole reply within ${sendOptions.timeoutMs} ms` });
      });
      try {
        sendOptions.onSend?.();
      } catch {
        // See SendOptions.onSend.
      }
      return outcome;
    }

    client.once('socket', (connecting) => {
      socket = connecting;
      connecting.once('connect', () => {
        tcpConnected = true;
      });
      connecting.once(secure ? 'secureConnect' : 'connect', () => {
        if (phase !== 'connecting') return;
        phase = 'open';
        cancelTimer();
        resolve({ kind: 'open', connection });
      });
    });
  });
}

function stillAllowed(mayStillSend: () => boolean, drop: () => void): boolean {
  try {
    return mayStillSend();
  } catch (error) {
    drop();
    throw error;
  }
}

function prepare(
  request: OneShotRequest,
  ca: string | undefined,
): { kind: 'prepared'; client: http.ClientRequest; secure: boolean } | NotSent {
  const forbidden = Object.keys(request.headers).find((name) => FRAMING.has(name.toLowerCase()));
  if (forbidden !== undefined) return notSent('invalid_request', `the header ${forbidden} is not the caller's to set`);
  try {
    const url = new URL(request.url);
    const secure = url.protocol === 'https:';
    if (!secure && url.protocol !== 'http:')
      return notSent('invalid_request', `the scheme ${url.protocol} is not http or https`);
    const options: https.RequestOptions = {
      method: request.method,
      headers: { ...request.headers, 'content-length': String(request.bodyLength) },
      // A connection of its own, closed after use; no pool, no keep-alive.
      agent: false,
      ...(ca === undefined ? {} : { ca }),
    };
    return { kind: 'prepared', client: secure ? https.request(url, options) : http.request(url, options), secure };
  } catch (error) {
    return notSent('invalid_request', error instanceof Error ? error.message : String(error));
  }
}

function whyUnconnected(error: Error | undefined, handshaking: boolean): NotSent['reason'] {
  if (handshaking) return 'tls';
  return error !== undefined && isDnsError(error) ? 'dns' : 'refused';
}

function notSent(reason: NotSent['reason'], detail: string): NotSent {
  return { kind: 'not_sent', reason, detail };
}
