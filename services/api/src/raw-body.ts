import { BODY_BYTES_MAX } from '@counterstamp/api-contract';
import { type JsonValue, type Parsed, parseStrictJson, parseWith, type Refusal } from '@counterstamp/manifest-core';
import type { z } from 'zod';
import { type Refused, refused, refusedBy } from './problem.ts';

const JSON_MEDIA_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset[ \t]*=[ \t]*"?utf-8"?[ \t]*)?$/i;

/**
 * Reads a request's JSON body from its raw bytes, as strictly as `parseStrictJson`, before any lenient parser can see it.
 * Refuses with body_too_large (as soon as it shows, without buffering more), content_type_unsupported, body_incomplete, body_missing,
 * text_not_utf8 and everything of the input gate.
 * @param whenAbsent value of an absent body; without it an absent body is refused.
 */
export async function readJsonBody(request: Request, whenAbsent?: JsonValue): Promise<Parsed<JsonValue>> {
  const type = request.headers.get('content-type');
  const encoding = request.headers.get('content-encoding');
  if ((type !== null && !JSON_MEDIA_TYPE.test(type)) || (encoding !== null && encoding.toLowerCase() !== 'identity'))
    return refuse(refused('content_type_unsupported'));

  const read = await readBytes(request);
  if (!read.ok) return read;
  if (read.value.byteLength === 0)
    return whenAbsent === undefined ? refuse(refused('body_missing')) : { ok: true, value: whenAbsent };
  if (type === null) return refuse(refused('content_type_unsupported'));

  const text = decodeUtf8(read.value);
  return text === undefined ? refuse(refused('text_not_utf8')) : parseStrictJson(text);
}

/** Reads a request's body as a schema has it; the refusal names the first fault. */
export async function readBody<T>(
  request: Request,
  schema: z.ZodType<T>,
  whenAbsent?: JsonValue,
): Promise<{ ok: true; value: T } | { ok: false; refused: Refused }> {
  const json = await readJsonBody(request, whenAbsent);
  const body = json.ok ? parseWith(schema, json.value) : json;
  return body.ok ? body : { ok: false, refused: refusedBy(body.refusal) };
}

async function readBytes(request: Request): Promise<Parsed<Uint8Array>> {
  const tooLarge = () =>
    refuse(refused('body_too_large', '', { detail: `the body may hold ${BODY_BYTES_MAX} bytes at most` }));
  if (Number(request.headers.get('content-length')) > BODY_BYTES_MAX) return tooLarge();
  if (request.body === null) return { ok: true, value: new Uint8Array() };

  const reader: ReadableStreamDefaultReader<Uint8Array> = request.body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.byteLength;
      if (size > BODY_BYTES_MAX) {
        // What is still under way is the server's to drop; waiting for it here would be reading it.
        void reader.cancel().catch(() => undefined);
        return tooLarge();
      }
      chunks.push(value);
    }
  } catch {
    // The connection ended early: nobody hears the answer, and it is no fault of ours.
    return refuse(refused('body_incomplete'));
  }
  return { ok: true, value: Buffer.concat(chunks, size) };
}

/** Strict UTF-8; a byte order mark stays and is refused as a syntax error (RFC 8259). `undefined` when malformed. */
function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function refuse({ code, path, detail }: Refusal): { ok: false; refusal: Refusal } {
  return { ok: false, refusal: { code, path, detail } };
}
