import type { ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Pauses } from '../pauses.ts';
import type { Answer } from './answer.ts';
import type { NodeContext } from './binding.ts';

// node-server swaps the global Response for a lightweight one that caches its parts, and writes a cached one out even
// when it means "already sent". Reading `url` makes the object leave that cache, whichever class it was made from.
void RESPONSE_ALREADY_SENT.url;

/**
 * Answers plainly. Written to Node's response directly: the Fetch objects in between cost more than the whole rest of a
 * request, unless the process's global Response is replaced, which a guest in other programs' tests must not do.
 */
export function respond(c: NodeContext, answer: Answer): Response {
  return send(c.env.outgoing, answer);
}

function send(outgoing: ServerResponse, answer: Answer): Response {
  const bytes = Buffer.byteLength(answer.body);
  outgoing.writeHead(answer.status, { ...answer.headers, 'content-length': bytes });
  outgoing.end(answer.body);
  return RESPONSE_ALREADY_SENT;
}

/** How an answer travels back. The effect, if any, is booked before and does not depend on it. */
export type Delivery =
  | { readonly kind: 'whole' }
  /** Nothing is sent; the connection is closed (FIN), or reset (RST). */
  | { readonly kind: 'cut'; readonly reset: boolean }
  /** The whole answer, `hold_ms` milliseconds late. */
  | { readonly kind: 'held'; readonly hold_ms: number }
  /** Headers with the full length, half of the body, then the connection is closed. */
  | { readonly kind: 'truncated' }
  /** One byte of the body every `interval_ms` milliseconds. */
  | { readonly kind: 'dripped'; readonly interval_ms: number }
  /** Another answer travels in its place; the true one is what is stored under the key. */
  | { readonly kind: 'replaced'; readonly answer: Answer };

/** Responses whose connection this side closed, so that they are not taken for a client's abort. */
const closedHere = new WeakSet<ServerResponse>();

/** Did the client go away before the answer was whole? Ask when the response has closed. */
export function abortedByClient(outgoing: ServerResponse): boolean {
  return !outgoing.writableFinished && !closedHere.has(outgoing);
}

function destroySocket(outgoing: ServerResponse): void {
  closedHere.add(outgoing);
  outgoing.socket?.destroy();
}

export interface DeliveryEnd {
  readonly response: Response;
  /** True when this side closed the connection without having sent a byte. */
  readonly cut: boolean;
}

/** Sends `answer` the way `delivery` says; a hold is over when this returns. */
export async function deliver(
  outgoing: ServerResponse,
  answer: Answer,
  delivery: Delivery,
  pauses: Pauses,
): Promise<DeliveryEnd> {
  switch (delivery.kind) {
    case 'whole':
      return { response: send(outgoing, answer), cut: false };
    case 'replaced':
      return { response: send(outgoing, delivery.answer), cut: false };
    case 'cut':
      return cut(outgoing, delivery.reset);
    case 'held':
      if ((await pauses.pause(delivery.hold_ms)) === 'cancelled') return cut(outgoing, false);
      return { response: send(outgoing, answer), cut: false };
    case 'truncated':
      await sendHalf(outgoing, answer);
      return { response: RESPONSE_ALREADY_SENT, cut: false };
    case 'dripped':
      await drip(outgoing, answer, delivery.interval_ms, pauses);
      return { response: RESPONSE_ALREADY_SENT, cut: false };
    default:
      return delivery satisfies never;
  }
}

/** Closes the connection without a byte of answer. */
export function cut(outgoing: ServerResponse, reset: boolean): DeliveryEnd {
  closedHere.add(outgoing);
  if (reset) outgoing.socket?.resetAndDestroy();
  else destroySocket(outgoing);
  return { response: RESPONSE_ALREADY_SENT, cut: true };
}

function writeHead(outgoing: ServerResponse, answer: Answer, bytes: Buffer): void {
  outgoing.writeHead(answer.status, { ...answer.headers, 'content-length': bytes.length });
}

async function sendHalf(outgoing: ServerResponse, answer: Answer): Promise<void> {
  const bytes = Buffer.from(answer.body);
  writeHead(outgoing, answer, bytes);
  await new Promise<void>((resolve) => {
    // The callback also runs, with an error, when the client has gone.
    outgoing.write(bytes.subarray(0, Math.floor(bytes.length / 2)), () => resolve());
  });
  destroySocket(outgoing);
}

async function drip(outgoing: ServerResponse, answer: Answer, intervalMs: number, pauses: Pauses): Promise<void> {
  const bytes = Buffer.from(answer.body);
  writeHead(outgoing, answer, bytes);
  for (const byte of bytes) {
    if (outgoing.destroyed) return;
    outgoing.write(Buffer.of(byte));
    if ((await pauses.pause(intervalMs)) === 'cancelled') {
      destroySocket(outgoing);
      return;
    }
  }
  outgoing.end();
}
