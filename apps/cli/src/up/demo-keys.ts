/** Tenants of the demonstration. */
export const DEMO_TENANTS = ['shop_north', 'shop_south'] as const;
export type DemoTenant = (typeof DEMO_TENANTS)[number];

/** Who holds a key in each of them. Two approvers: larger refunds need two people. */
export const DEMO_PEOPLE = {
  requester: 'requester',
  approver: 'approver',
  approver_2: 'approver',
  operator: 'operator',
  auditor: 'auditor',
} as const;
export type DemoPerson = keyof typeof DEMO_PEOPLE;
