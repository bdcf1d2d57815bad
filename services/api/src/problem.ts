import { PROBLEM_MEDIA_TYPE, type Problem, type RecordedDecision } from '@counterstamp/api-contract';
import { ERRORS, type ErrorCode, type Refusal, type RunId } from '@counterstamp/manifest-core';

/** Seconds after which a caller may try again when the database is away. */
const RETRY_AFTER_S = 2;

/** A refusal on its way out, with what some codes carry beside it. */
export interface Refused extends Refusal {
  kind: 'refused';
  decisions?: RecordedDecision[];
  run_id?: RunId;
  trace_id?: string;
  /** The database wrote the audit event in the transaction that refused. */
  audited?: boolean;
  /** Value of the `Allow` header of a 405. */
  allow?: string;
  /** Further headers of the answer. */
  headers?: Record<string, string>;
}

/** Builds a refusal. `path` is an RFC 6901 pointer, or `/name` of a parameter; the catalogue's sentence is the default detail. */
export function refused(
  code: ErrorCode,
  path = '',
  more: Partial<Omit<Refused, 'kind' | 'code' | 'path'>> = {},
): Refused {
  return { kind: 'refused', code, path, detail: ERRORS[code].title, ...more };
}

/** A refusal of the input gate, as it is. */
export function refusedBy(refusal: Refusal): Refused {
  return { kind: 'refused', ...refusal };
}

/** Renders a refusal as RFC 9457 problem+json. Never holds a stack. */
export function problemResponse(refusal: Refused): Response {
  const { code, path, detail, decisions, run_id, trace_id, allow } = refusal;
  const { status, title } = ERRORS[code];
  const problem: Problem = {
    type: `urn:counterstamp:error:${code}`,
    title,
    status,
    code,
    path,
    detail,
    ...(decisions === undefined ? {} : { decisions }),
    ...(run_id === undefined ? {} : { run_id }),
    ...(trace_id === undefined ? {} : { trace_id }),
  };
  const headers: Record<string, string> = { ...refusal.headers, 'content-type': PROBLEM_MEDIA_TYPE };
  if (status === 401) headers['www-authenticate'] = 'Bearer realm="counterstamp"';
  if (status === 503) headers['retry-after'] = String(RETRY_AFTER_S);
  if (allow !== undefined) headers.allow = allow;
  return new Response(JSON.stringify(problem), { status, headers });
}
