import type { Call } from './command.ts';
import { type Refused, refused } from './problem.ts';

/**
 * Holds and instances are the installation's: a hold stops every tenant's dispatches, and an instance that counts as fenced while it can still
 * send endangers them all. So where an installation names its own tenant, only that one's operators switch and judge them.
 */
export function installationRefusal({ deps, who }: Pick<Call, 'deps' | 'who'>): Refused | undefined {
  const { operating_tenant } = deps;
  if (operating_tenant === undefined || who.tenant_id === operating_tenant) return undefined;
  return refused('role_missing', '', { detail: 'only operators of the installation’s own tenant may do this' });
}
