import { type HotRow, Revision, type RunId, STATES } from '@counterstamp/manifest-core';
import { z } from 'zod';

const Columns = z.object({
  revision: Revision,
  state: z.enum(STATES),
  evidence_complete: z.boolean(),
  decisions_sufficient: z.boolean(),
  retry_allowed: z.boolean(),
  parked_reason: z.string().nullable(),
  wake_at: z.string().nullable(),
  tenant_in_line: z.int().nonnegative(),
});

/** Parses what a commit function returned of the row. */
export function hotRow(run_id: RunId, columns: unknown): HotRow {
  return { run_id, ...Columns.parse(columns) };
}
