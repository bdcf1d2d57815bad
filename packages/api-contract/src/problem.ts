import { ERRORS, type ErrorCode, RunId } from '@counterstamp/manifest-core';
import { z } from 'zod';
import { RecordedDecision } from './answers.ts';

export const PROBLEM_MEDIA_TYPE = 'application/problem+json';

const codes = Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]];

/**
 * A refused request (RFC 9457). `code` is stable and listed in docs/reference/errors.md. `path` is an RFC 6901 pointer into the body,
 * or `/name` of a path or query parameter; "" means the request as a whole.
 */
export const Problem = z.strictObject({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  code: z.enum(codes),
  path: z.string(),
  detail: z.string(),
  /** With `already_decided`: what is recorded for the approval, oldest first. */
  decisions: z.array(RecordedDecision).optional(),
  /** With `idempotency_conflict`: the run that the request id belongs to. */
  run_id: RunId.optional(),
  /** With `internal_error`: what to look for in the log. */
  trace_id: z.string().optional(),
});
export type Problem = z.infer<typeof Problem>;

/** The api refused the request, and said why. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError';
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(`${problem.code}${problem.path === '' ? '' : ` at ${problem.path}`}: ${problem.detail}`);
    this.problem = problem;
  }

  get status(): number {
    return this.problem.status;
  }
  get code(): ErrorCode {
    return this.problem.code;
  }
  get path(): string {
    return this.problem.path;
  }
  get detail(): string {
    return this.problem.detail;
  }
}
