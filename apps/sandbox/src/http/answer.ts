import { STATUS_CODES } from 'node:http';

/** A complete HTTP answer as a value: it can be decided without I/O, stored under a key and sent again byte for byte. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The problem's code; null for anything that is no problem. */
  readonly code: string | null;
}

/** RFC 9457 problem details; `code` is the stable name of the failure. */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly code: string;
  readonly detail: string;
}

export function jsonAnswer(status: number, value: unknown): Answer {
  return { status, headers: { 'content-type': 'application/json' }, body: JSON.stringify(value), code: null };
}

export function problemAnswer(status: number, code: string, detail: string): Answer {
  const problem: Problem = {
    type: `urn:counterstamp:sandbox:${code}`,
    title: STATUS_CODES[status] ?? 'Unknown status',
    status,
    code,
    detail,
  };
  return { status, headers: { 'content-type': 'application/problem+json' }, body: JSON.stringify(problem), code };
}

export function withHeader(answer: Answer, name: string, value: string): Answer {
  return { ...answer, headers: { ...answer.headers, [name]: value } };
}
