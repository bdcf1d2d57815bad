import http from 'node:http';
import https from 'node:https';
import { type HttpTimers, systemHttpTimers } from '../ports/http-timers.ts';
import { brokenBy, codeOf, detailOf, type HttpReply, isDnsError, readReply } from './reply.ts';

/** No whole reply. A read has no effect, so the caller may ask again whatever the reason. */
export interface Unreachable {
  kind: 'unreachable';
  reason:
    | 'refused'
    | 'dns'
    | 'tls'
    | 'timeout'
    | 'reset'
    | 'truncated'
    | 'too_large'
    | 'malformed'
    | 'aborted'
    | 'closed'
    | 'invalid_request';
  detail: string;
}

export interface ReadOptions {
  headers?: Readonly<Record<string, string>>;
  /** Milliseconds for the whole read, waiting for a free connection included. */
  timeoutMs: number;
  /** Largest body; default 1 MiB. */
  maxBytes?: number;
  signal?: AbortSignal;
}

/** Reads by GET over kept connections. */
export interface ReadClient {
  /**
   * One GET. Redirects are returned, not followed. A kept connection that turns out to have been closed is replaced once
   * and the read repeated within the same `timeoutMs`. Never rejects.
   */
  get(url: string, options: ReadOptions): Promise<HttpReply | Unreachable>;
  /** Ends reads under way (`closed`) and drops the kept connections. */
  close(): void;
}

/** Largest body unless the caller says otherwise: 1 MiB, hundreds of times what a look-up returns. */
const MAX_BYTES = 1_048_576;

/** Connections to one host at a time; further reads wait. */
const MAX_SOCKETS = 16;

/** Milliseconds that an unused connection is kept. Shorter than the usual 60 s of servers, so that we close first. */
const KEPT_MS = 15_000;

/** What a connection says that its peer had already closed. */
const STALE = new Set(['ECONNRESET', 'EPIPE']);

export function createReadClient(settings: { maxSockets?: number; ca?: string; timers?: HttpTimers } = {}): ReadClient {
  const { maxSockets = MAX_SOCKETS, timers = systemHttpTimers } = settings;
  const shared = { keepAlive: true, maxSockets, timeout: KEPT_MS };
  const plainAgent = new http.Agent(shared);
  const secureAgent = new https.Agent({ ...shared, ...(settings.ca === undefined ? {} : { ca: settings.ca }) });
  const underWay = new Set<(result: Unreachable) => void>();
  let closed = false;

  /** `stale`: a kept connection broke before any answer, so that a fresh one may well work. */
  function attempt(
    url: URL,
    options: ReadOptions,
    timeoutMs: number,
    fresh: boolean,
  ): Promise<{ result: HttpReply | Unreachable; stale: boolean }> {
    const secure = url.protocol === 'https:';
    return new Promise((resolve) => {
      const requestOptions: https.RequestOptions = {
        method: 'GET',
        headers: { ...options.headers },
        agent: fresh ? false : secure ? secureAgent : plainAgent,
        ...(settings.ca === undefined ? {} : { ca: settings.ca }),
      };
      const request = secure ? https.request(url, requestOptions) : http.request(url, requestOptions);
      let over = false;
      let replying = false;
      let tcpConnected = false;
      let secured = false;
      const end = (result: HttpReply | Unreachable, stale = false): void => {
        if (over) return;
        over = true;
        cancelTimer();
        options.signal?.removeEventListener('abort', onAbort);
        underWay.delete(end);
        // After a whole reply the agent has already taken the connection back; anything else must not be kept.
        if (result.kind !== 'reply') request.destroy();
        resolve({ result, stale });
      };
      const onAbort = (): void => end(unreachable('aborted', 'given up'));
      const cancelTimer = timers.after(timeoutMs, () =>
        end(unreachable('timeout', `no whole reply within ${options.timeoutMs} ms`)),
      );
      options.signal?.addEventListener('abort', onAbort, { once: true });
      underWay.add(end);
      request.once('socket', (socket) => {
        if (!socket.connecting) tcpConnected = true;
        else
          socket.once('connect', () => {
            tcpConnected = true;
          });
        if (secure)
          socket.once('secureConnect', () => {
            secured = true;
          });
      });
      request.on('error', (error) => {
        if (request.reusedSocket && !replying && STALE.has(codeOf(error))) {
          end(unreachable('reset', detailOf(error)), true);
          return;
        }
        const established = tcpConnected && (!secure || secured || request.reusedSocket);
        const lost = replying ? 'truncated' : 'reset';
        end(
          unreachable(brokenBy(error) ?? (established ? lost : whyUnconnected(error, tcpConnected)), detailOf(error)),
        );
      });
      request.on('close', () => {
        // While a reply is being read, its own end says more.
        if (!replying) end(unreachable('reset', 'the peer closed the connection'));
      });
      request.on('upgrade', (_message, socket) => {
        socket.destroy();
        end(unreachable('malformed', 'the peer switched protocols'));
      });
      request.on('response', (message) => {
        replying = true;
        readReply(message, options.maxBytes ?? MAX_BYTES, (result) => {
          end(result.kind === 'reply' ? result : unreachable(result.reason, result.detail));
        });
      });
      request.end();
    });
  }

  async function get(text: string, options: ReadOptions): Promise<HttpReply | Unreachable> {
    if (closed) return unreachable('closed', 'this client has been closed');
    if (options.signal?.aborted === true) return unreachable('aborted', 'given up before connecting');
    const startedAt = timers.monotonicMs();
    try {
      const url = new URL(text);
      if (url.protocol !== 'http:' && url.protocol !== 'https:')
        return unreachable('invalid_request', `the scheme ${url.protocol} is not http or https`);
      const first = await attempt(url, options, options.timeoutMs, false);
      if (!first.stale || closed) return first.result;
      const leftMs = options.timeoutMs - (timers.monotonicMs() - startedAt);
      if (leftMs <= 0) return first.result;
      return (await attempt(url, options, leftMs, true)).result;
    } catch (error) {
      // Only what node refuses before it connects: an impossible URL or header.
      return unreachable('invalid_request', error instanceof Error ? error.message : String(error));
    }
  }

  return {
    get,
    close: () => {
      closed = true;
      for (const end of [...underWay]) end(unreachable('closed', 'this client has been closed'));
      plainAgent.destroy();
      secureAgent.destroy();
    },
  };
}

function whyUnconnected(error: Error, handshaking: boolean): Unreachable['reason'] {
  if (isDnsError(error)) return 'dns';
  return handshaking ? 'tls' : 'refused';
}

function unreachable(reason: Unreachable['reason'], detail: string): Unreachable {
  return { kind: 'unreachable', reason, detail };
}
