import { PRINCIPAL_ROLES, type PrincipalRef, type PrincipalRole, type Session } from '@counterstamp/manifest-store';

/** Who a request is from. A key carries one role of its principal, a session all of them; break_glass is never a key's. */
export type Caller = KeyCaller | SessionCaller;
export interface KeyCaller extends PrincipalRef {
  via: 'key';
  roles: readonly PrincipalRole[];
}
export interface SessionCaller extends PrincipalRef {
  via: 'session';
  roles: readonly PrincipalRole[];
  session: Session;
  /** What every request that changes something has to repeat in `x-csrf-token`. */
  csrf_token: string;
}

/** Whoever has anything to do with runs may read those of their tenant. */
const READERS = PRINCIPAL_ROLES;

/** What a caller may do: one row per action, named as in the audit. A run of another tenant is unknown to all of them. */
export const MAY = {
  create_run: ['requester'],
  list_runs: READERS,
  get_run: READERS,
  approval_card: READERS,
  run_events: READERS,
  receipt: READERS,
  list_alarms: ['operator', 'auditor'],
  list_checkpoints: ['operator', 'auditor'],
  propose: ['requester'],
  decide: ['approver', 'break_glass'],
  cancel_run: ['requester', 'operator'],
  verdict: ['operator'],
  support_verdict: ['operator'],
  list_instances: ['operator'],
  fence_instance: ['operator'],
  list_holds: ['operator', 'auditor'],
  set_hold: ['operator'],
  release_hold: ['operator'],
} as const satisfies Record<string, readonly PrincipalRole[]>;
export type Action = keyof typeof MAY;

export function may(caller: Pick<Caller, 'roles'>, action: Action): boolean {
  const permitted: readonly PrincipalRole[] = MAY[action];
  return caller.roles.some((role) => permitted.includes(role));
}
