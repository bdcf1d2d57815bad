import type { z } from 'zod';
import { type Answer, problemAnswer } from '../http/answer.ts';
import type { NodeContext } from '../http/binding.ts';
import { describeIssues, parseJson, readBody } from '../http/body.ts';
import { respond } from '../http/delivery.ts';

/** Largest admin body in bytes. 1 MB: a long list of faults. */
const BODY_BYTES_MAX = 1024 * 1024;

/** Parses the body and answers with what `act` makes of it; what does not fit is a 4xx. */
export async function withBody<T>(c: NodeContext, schema: z.ZodType<T>, act: (value: T) => Answer): Promise<Response> {
  const read = await readBody(c.env.incoming, BODY_BYTES_MAX);
  if (read.kind === 'too_large') {
    return respond(c, problemAnswer(413, 'body_too_large', `The body is larger than ${BODY_BYTES_MAX} bytes.`));
  }
  if (read.kind === 'abandoned')
    return respond(c, problemAnswer(400, 'invalid_json', 'The body did not arrive whole.'));
  const parsed = parseJson(read.bytes, schema);
  return respond(c, parsed.ok ? act(parsed.value) : parsed.answer);
}

/** The same for the query. */
export function withQuery<T>(c: NodeContext, schema: z.ZodType<T>, act: (value: T) => Answer): Response {
  const query = schema.safeParse(c.req.query());
  return respond(
    c,
    query.success ? act(query.data) : problemAnswer(400, 'invalid_request', describeIssues(query.error)),
  );
}
