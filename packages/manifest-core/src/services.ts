/** The processes that may change a run. Each logs in to Postgres under its own role. */
export const SERVICES = ['api', 'preflight', 'executor', 'verifier', 'reconciler'] as const;
export type Service = (typeof SERVICES)[number];
