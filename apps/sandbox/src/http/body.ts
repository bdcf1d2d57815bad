import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { z } from 'zod';
import { type Answer, problemAnswer } from './answer.ts';

export type BodyRead =
  | { readonly kind: 'whole'; readonly bytes: Buffer }
  | { readonly kind: 'too_large' }
  /** The client went away before its last byte. */
  | { readonly kind: 'abandoned' };

/** Reads the body exactly as received, at most `bytesMax` bytes of it. */
export async function readBody(incoming: IncomingMessage, bytesMax: number): Promise<BodyRead> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const settle = (read: BodyRead): void => {
      incoming.off('data', onData);
      resolve(read);
    };
    const onData = (chunk: Buffer): void => {
      length += chunk.length;
      if (length > bytesMax) settle({ kind: 'too_large' });
      else chunks.push(chunk);
    };
    if (incoming.destroyed) {
      settle({ kind: 'abandoned' });
      return;
    }
    incoming.on('data', onData);
    incoming.once('end', () => settle({ kind: 'whole', bytes: Buffer.concat(chunks) }));
    incoming.once('error', () => settle({ kind: 'abandoned' }));
    incoming.once('close', () => settle({ kind: 'abandoned' }));
  });
}

/** Hex SHA-256 of raw bytes. */
export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** `sha256:` and hex over the tag `cs.request-bytes.v1`, a zero byte and the raw bytes: how Counterstamp stores what an attempt sends. */
export function requestDigest(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update('cs.request-bytes.v1\0').update(bytes).digest('hex')}`;
}

export type Parsed<T> =
  | { readonly ok: true; readonly value: T; readonly text: string }
  | { readonly ok: false; readonly answer: Answer };

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Bytes → JSON → `schema`; whatever does not fit becomes a 400, never an exception. */
export function parseJson<T>(bytes: Uint8Array, schema: z.ZodType<T>): Parsed<T> {
  let json: unknown;
  let text: string;
  try {
    text = UTF8.decode(bytes);
    json = JSON.parse(text);
  } catch {
    return { ok: false, answer: problemAnswer(400, 'invalid_json', 'The body is not JSON in UTF-8.') };
  }
  // Zod's strict objects drop an own `__proto__` member without a word, and the body would not mean what was sent.
  if (typeof json === 'object' && json !== null && Object.hasOwn(json, '__proto__')) {
    return { ok: false, answer: problemAnswer(400, 'invalid_request', '/__proto__: unknown member') };
  }
  const result = schema.safeParse(json);
  if (result.success) return { ok: true, value: result.data, text };
  return { ok: false, answer: problemAnswer(400, 'invalid_request', describeIssues(result.error)) };
}

/** One line with the JSON pointer of every problem, for the `detail` of a 400. */
export function describeIssues(error: z.ZodError): string {
  return error.issues.map((issue) => `/${issue.path.join('/')}: ${issue.message}`).join('; ');
}
