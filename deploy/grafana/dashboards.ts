import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import { approvals } from './approvals.ts';
import { attemptsAndReconciliation } from './attempts-and-reconciliation.ts';
import { overview } from './overview.ts';
import { queuesAndWorkers } from './queues-and-workers.ts';
import { stateAges } from './state-ages.ts';
import { tenants } from './tenants.ts';

/** Every dashboard, by the name of the file that `npm run generate` writes it to. */
export const DASHBOARDS: Readonly<Record<string, Dashboard>> = {
  overview: overview(),
  'state-ages': stateAges(),
  'queues-and-workers': queuesAndWorkers(),
  'attempts-and-reconciliation': attemptsAndReconciliation(),
  approvals: approvals(),
  tenants: tenants(),
};
