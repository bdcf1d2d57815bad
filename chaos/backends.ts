/** What carries the hints: Redis, or the database itself. */
export const BACKENDS = ['redis', 'postgres'] as const;
export type Backend = (typeof BACKENDS)[number];
