import { DASHBOARDS } from '../deploy/grafana/dashboards.ts';

/** One expression of a dashboard, with where it is shown. */
export interface DashboardQuery {
  dashboard: string;
  panel: string;
  expr: string;
  legend: string;
}

/** A panel as Grafana's schema has it; of a dashboard's JSON. */
export interface ShownPanel {
  type: string;
  title: string;
  description?: string;
  targets?: readonly { expr: string; legendFormat?: string }[];
  fieldConfig?: { defaults?: { unit?: string; custom?: { scaleDistribution?: { type?: string } } } };
  options?: { content?: string };
  gridPos?: { x: number; y: number; w: number; h: number };
}

/** Panels of every dashboard. */
export function panelsOf(dashboard: (typeof DASHBOARDS)[string]): ShownPanel[] {
  // Through JSON, as Grafana gets it.
  return JSON.parse(JSON.stringify(dashboard.panels ?? [])) as ShownPanel[];
}

/** Every expression of every dashboard, as Grafana sends it when it takes rates over `rateInterval`. */
export function dashboardQueries(rateInterval: string): DashboardQuery[] {
  return Object.entries(DASHBOARDS).flatMap(([name, dashboard]) =>
    panelsOf(dashboard).flatMap((panel) =>
      (panel.targets ?? []).map(({ expr, legendFormat = '' }) => ({
        dashboard: name,
        panel: panel.title,
        expr: expr.replaceAll('$__rate_interval', rateInterval),
        legend: legendFormat,
      })),
    ),
  );
}
