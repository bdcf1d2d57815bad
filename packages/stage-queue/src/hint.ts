import { z } from 'zod';
import type { Stage } from './stages.ts';

const UUID = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}';

/**
 * All that travels on a queue: which run to look at, and the revision that the sender saw. A worker always reloads the
 * run, so a lost, repeated or outdated hint is harmless.
 */
export const Hint = z.strictObject({
  run_id: z.string().regex(new RegExp(`^(run_)?${UUID}$`), 'run_id_malformed'),
  revision: z.int().positive(),
});
export type Hint = z.infer<typeof Hint>;

/**
 * Stage, run and revision. The same hint twice is one job while the first waits or runs. BullMQ refuses ids with a colon
 * and ids of digits only, so the id keeps to `[A-Za-z][A-Za-z0-9_-]*`.
 */
export function hintJobId(stage: Stage, hint: Hint): string {
  return `${stage}-${hint.run_id}-${hint.revision}`;
}
