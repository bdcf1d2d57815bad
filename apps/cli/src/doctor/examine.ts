import { configurationFindings, durationFindings } from './configuration.ts';
import { apiFindings, queueFindings } from './connections.ts';
import { databaseFindings, loginFindings } from './database.ts';
import type { Finding } from './finding.ts';
import type { Subject } from './subject.ts';

/** Every check, in the order in which a person would repair. All of them at once and each bounded; nothing is changed. */
export async function examine(subject: Subject): Promise<Finding[]> {
  const [database, logins, queues, api] = await Promise.all([
    databaseFindings(subject),
    loginFindings(subject),
    queueFindings(subject),
    apiFindings(subject),
  ]);
  return [...configurationFindings(subject), ...durationFindings(subject), ...database, ...logins, ...queues, ...api];
}
