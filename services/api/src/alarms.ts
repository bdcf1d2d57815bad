import { type Alarms, AlarmsQuery } from '@counterstamp/api-contract';
import { type Answer, answered, type Call } from './command.ts';
import { refusedBy } from './problem.ts';
import { parseQuery } from './query.ts';

/** The tenant's alarms, newest first, page by page. */
export async function listAlarms({ deps, who, request }: Call): Promise<Answer<Alarms>> {
  const query = parseQuery(AlarmsQuery, request);
  if (!query.ok) return refusedBy(query.refusal);
  const { after, limit } = query.value;
  // One more than asked for tells whether there is a next page.
  const found = await deps.store.alarms(who.tenant_id, { limit: limit + 1, ...(after === undefined ? {} : { after }) });
  const alarms = found.slice(0, limit);
  const next_after = found.length > limit ? (alarms.at(-1)?.alarm_id ?? null) : null;
  return answered({ alarms, next_after });
}
