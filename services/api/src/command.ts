import { RunParameters } from '@counterstamp/api-contract';
import { BEFORE_DISPATCH, parseWith, type RunId, type State } from '@counterstamp/manifest-core';
import type { Caller, SessionCaller } from './caller.ts';
import type { ApiDeps } from './deps.ts';
import type { Hints } from './hints.ts';
import { type Refused, refusedBy } from './problem.ts';
import type { SignIn } from './sign-in.ts';

/** An answer that is not a refusal. `body` has the shape that the route's contract names for `status`. */
export interface Answered<T> {
  kind: 'answered';
  status: 200 | 201;
  body: T;
  headers?: Record<string, string>;
}
export type Answer<T> = Answered<T> | Refused;

/** One authenticated request whose role was checked. */
export interface Call {
  deps: ApiDeps;
  hints: Hints;
  who: Caller;
  request: Request;
  /** Path parameters as sent. */
  parameters: Readonly<Record<string, string>>;
}

/** One request of a signed-in person. */
export interface SessionCall extends Call {
  who: SessionCaller;
  signIn: SignIn;
}

/** One request of a browser whose person is not known yet: to enrol or to sign in. */
export interface OpenCall extends Pick<Call, 'deps' | 'request'> {
  signIn: SignIn;
}

export function answered<T>(body: T, status: 200 | 201 = 200, headers?: Record<string, string>): Answered<T> {
  return { kind: 'answered', status, body, ...(headers === undefined ? {} : { headers }) };
}

/** How often a command is decided again after another worker committed first; then the caller is told. */
export const SWAPS_MAX = 5;

/** The run id of the path. */
export function runIdOf(call: Pick<Call, 'parameters'>): { ok: true; run_id: RunId } | { ok: false; refused: Refused } {
  const parsed = parseWith(RunParameters, call.parameters);
  return parsed.ok ? { ok: true, run_id: parsed.value.run_id } : { ok: false, refused: refusedBy(parsed.refusal) };
}

/** Whether nothing can have been sent yet. */
export function isBeforeDispatch(state: State): boolean {
  return (BEFORE_DISPATCH as readonly State[]).includes(state);
}
