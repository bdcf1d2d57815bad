/** Tenants of the demonstration. */
export const DEMO_TENANTS = ['shop_north', 'shop_south'] as const;
export type DemoTenant = (typeof DEMO_TENANTS)[number];

/** Who holds a key in each of them. Two approvers, the second of finance: larger refunds need two people, one of them of that group. */
export const DEMO_PEOPLE = {
  requester: 'requester',
  approver: 'approver',
  approver_2: 'approver',
  operator: 'operator',
  auditor: 'auditor',
} as const;
export type DemoPerson = keyof typeof DEMO_PEOPLE;

/** Who approves, and so signs with a passkey during the tour. */
export const DEMO_SIGNERS = ['approver', 'approver_2'] as const satisfies readonly DemoPerson[];

/** Groups of a person, for policies that ask for one. */
export const DEMO_GROUPS: Readonly<Partial<Record<DemoPerson, readonly string[]>>> = { approver_2: ['finance'] };

/** The principal's name. */
export function demoName(person: DemoPerson): string {
  return `demo-${person}`;
}
