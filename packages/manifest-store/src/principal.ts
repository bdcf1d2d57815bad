/** What a key may be used for. */
export const ROLES = ['requester', 'approver', 'operator', 'auditor'] as const;
export type Role = (typeof ROLES)[number];

/** Who asks: always the authenticated one, never a name from a body. */
export interface Principal {
  tenant_id: string;
  principal_id: string;
  role: Role;
}
