import { ExternalId, RunId, SERVICES, STATES } from '@counterstamp/manifest-core';
import { z } from 'zod';
import { CredentialId } from './bodies.ts';

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

/** Instances that one answer holds at most; a fleet that restarts all day makes many, and the one of an old attempt is still wanted. */
const INSTANCES_MAX = 1_000;

export const InstanceParameters = z.strictObject({ instance_id: ExternalId });

export const PasskeyParameters = z.strictObject({ credential_id: CredentialId });

/** A number of rows in a query. Digits only: a lenient conversion would read "" as 0 and "1e2" as 100. */
const rows = (max: number) =>
  z
    .string()
    .regex(/^[1-9][0-9]{0,3}$/, `limit is a number from 1 to ${max}`)
    .transform(Number)
    .refine((limit) => limit <= max, `limit is a number from 1 to ${max}`)
    .default(PAGE_DEFAULT);

/** Query of `GET /v1/instances`. `limit` is 1 to 1000, 50 when absent; the newest come first. */
export const InstancesQuery = z.strictObject({
  service: z.enum(SERVICES).optional(),
  limit: rows(INSTANCES_MAX),
});
export type InstancesQuery = z.input<typeof InstancesQuery>;

/** Query of `GET …/receipt`. `none` leaves out the facts of the evidence and the reasons that people gave; their digests stay. */
export const ReceiptQuery = z.strictObject({ disclose: z.enum(['all', 'none']).default('all') });
export type ReceiptQuery = z.input<typeof ReceiptQuery>;

/** Checkpoints that one answer holds at most. */
const CHECKPOINTS_MAX = 1_000;

/** Query of `GET /v1/checkpoints`. `after` is a checkpoint's number, 0 when absent: from the first. `limit` is 1 to 1000, 50 when absent. */
export const CheckpointsQuery = z.strictObject({
  after: z
    .string()
    .regex(/^(0|[1-9][0-9]{0,8})$/, 'after is the number of a checkpoint')
    .transform(Number)
    .default(0),
  limit: rows(CHECKPOINTS_MAX),
});

/** Alarms that one answer holds at most. */
const ALARMS_MAX = 1_000;

/**
 * Query of `GET /v1/alarms`. `after` is the alarm that the page before ended with; absent: from the newest. `limit` is 1 to 1000, 50 when
 * absent.
 */
export const AlarmsQuery = z.strictObject({
  after: z
    .string()
    .regex(/^[1-9][0-9]{0,14}$/, 'after is the number of an alarm')
    .transform(Number)
    .optional(),
  limit: rows(ALARMS_MAX),
});

/**
 * Query of `GET /v1/runs`. `limit` is 1 to 200, 50 when absent. `cursor` is a `next_cursor` of the same list (same `state`).
 */
export const ListQuery = z.strictObject({
  state: z.enum(STATES).optional(),
  limit: rows(PAGE_MAX),
  cursor: z.string().min(1, 'cursor_malformed').max(512, 'cursor_malformed').optional(),
});
export type ListQuery = z.input<typeof ListQuery>;
