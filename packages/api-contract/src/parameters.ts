import { RunId, STATES } from '@counterstamp/manifest-core';
import { z } from 'zod';

/** Runs on a page when the caller names no number. */
const PAGE_DEFAULT = 50;
const PAGE_MAX = 200;

export const RunParameters = z.strictObject({ run_id: RunId });

/** Characters of a connector's name at most. */
const SCOPE_MAX = 64;

/** The scope that holds every dispatch; any other is the name of one connector. */
export const HOLD_SCOPE_ALL = 'all';

export const HoldParameters = z.strictObject({
  scope: z
    .string()
    .max(SCOPE_MAX)
    .regex(/^[a-z][a-z0-9-]*$/, `a scope is ${HOLD_SCOPE_ALL} or the name of a connector`),
});

/**
 * Query of `GET /v1/runs`. `limit` is 1 to 200, 50 when absent. `cursor` is a `next_cursor` of the same list (same `state`).
 */
export const ListQuery = z.strictObject({
  state: z.enum(STATES).optional(),
  // Digits only: a lenient conversion would read "" as 0 and "1e2" as 100.
  limit: z
    .string()
    .regex(/^[1-9][0-9]{0,2}$/, `limit is a number from 1 to ${PAGE_MAX}`)
    .transform(Number)
    .refine((limit) => limit <= PAGE_MAX, `limit is a number from 1 to ${PAGE_MAX}`)
    .default(PAGE_DEFAULT),
  cursor: z.string().min(1, 'cursor_malformed').max(512, 'cursor_malformed').optional(),
});
export type ListQuery = z.input<typeof ListQuery>;
