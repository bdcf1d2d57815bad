import { type ApiStore, type Principal, parseApiKey, type Role } from '@counterstamp/manifest-store';

/** What a caller may do: one row per action, named as in the audit. A run of another tenant is unknown to all of them. */
export const MAY = {
  create_run: ['requester'],
  list_runs: ['requester', 'approver', 'operator', 'auditor'],
  get_run: ['requester', 'approver', 'operator', 'auditor'],
  run_events: ['requester', 'approver', 'operator', 'auditor'],
  propose: ['requester'],
  decide: ['approver'],
  cancel_run: ['requester', 'operator'],
  verdict: ['operator'],
  support_verdict: ['operator'],
  list_instances: ['operator'],
  fence_instance: ['operator'],
  list_holds: ['operator', 'auditor'],
  set_hold: ['operator'],
  release_hold: ['operator'],
} as const satisfies Record<string, readonly Role[]>;
export type Action = keyof typeof MAY;

export function may(role: Role, action: Action): boolean {
  return (MAY[action] as readonly Role[]).includes(role);
}

/**
 * Who holds the bearer key of this `Authorization` header; `undefined` when nobody does. What cannot be a key of ours never reaches the
 * database, and a try without a valid key writes nothing there.
 * @throws {StoreUnavailable}
 */
export async function authenticate(store: ApiStore, header: string | undefined): Promise<Principal | undefined> {
  const [, token] = /^Bearer +([^ ]+) *$/i.exec(header ?? '') ?? [];
  const key = token === undefined ? undefined : parseApiKey(token);
  return key === undefined ? undefined : await store.authenticate(key.key_id, key.secret_hash);
}
