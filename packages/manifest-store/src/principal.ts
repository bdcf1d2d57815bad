/** What a key may be used for. */
export const ROLES = ['requester', 'approver', 'operator', 'auditor'] as const;
export type Role = (typeof ROLES)[number];

/** What a principal may hold: beside the roles of keys, the right to break the glass, which no key carries. */
export const PRINCIPAL_ROLES = [...ROLES, 'break_glass'] as const;
export type PrincipalRole = (typeof PRINCIPAL_ROLES)[number];

/** Who asks: always the authenticated one, never a name from a body. The database compares both with what is asked for. */
export interface PrincipalRef {
  tenant_id: string;
  principal_id: string;
}

/** The holder of a key, with the one role that the key carries. */
export interface Principal extends PrincipalRef {
  role: Role;
}
