import type { IncomingMessage } from 'node:http';
import type { HttpReply } from '@counterstamp/manifest-core';

export type { HttpReply } from '@counterstamp/manifest-core';

/** Why no whole reply was read. `malformed`: what came is not HTTP. */
export type BrokenReply = 'truncated' | 'too_large' | 'malformed';

/**
 * Reads a reply to its end and calls `done` once: with the reply, or with what is wrong with it. A body that its peer ends
 * by closing the connection, without a length, cannot be told from one cut short; every other cut is `truncated`.
 */
export function readReply(
  message: IncomingMessage,
  maxBytes: number,
  done: (result: HttpReply | { kind: 'broken'; reason: BrokenReply; detail: string }) => void,
): void {
  let over = false;
  const chunks: Buffer[] = [];
  let size = 0;
  const end = (result: Parameters<typeof done>[0]): void => {
    if (over) return;
    over = true;
    done(result);
  };
  const tooLarge = (): void =>
    end({ kind: 'broken', reason: 'too_large', detail: `the reply is larger than ${maxBytes} bytes` });
  const truncated = (): void =>
    end({ kind: 'broken', reason: 'truncated', detail: `the reply ended after ${size} bytes of its body` });

  message.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size > maxBytes) tooLarge();
    else chunks.push(chunk);
  });
  message.on('end', () => {
    if (!message.complete) truncated();
    else
      end({
        kind: 'reply',
        status: message.statusCode ?? 0,
        headers: plainHeaders(message),
        body: Buffer.concat(chunks),
      });
  });
  message.on('error', truncated);
  message.on('close', truncated);
  if (Number(message.headers['content-length'] ?? 0) > maxBytes) tooLarge();
}

/** Lower-case names; a header that came more than once is joined with `, `. */
function plainHeaders(message: IncomingMessage): Record<string, string> {
  return Object.fromEntries(
    Object.entries(message.headers).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.join(', ') : (value ?? ''),
    ]),
  );
}

export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** One line for a log: code and message, never the request. */
export function detailOf(error: Error): string {
  const code = codeOf(error);
  return code === '' || error.message.includes(code) ? error.message : `${code} ${error.message}`.trim();
}

export function isDnsError(error: Error): boolean {
  return 'syscall' in error && error.syscall === 'getaddrinfo';
}

/** What node's parser says of bytes that are not HTTP. */
export function brokenBy(error: Error): BrokenReply | undefined {
  const code = codeOf(error);
  if (code === 'HPE_HEADER_OVERFLOW') return 'too_large';
  return code.startsWith('HPE_') ? 'malformed' : undefined;
}
