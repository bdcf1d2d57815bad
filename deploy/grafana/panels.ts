import type { Builder } from '@grafana/grafana-foundation-sdk/cog';
import * as common from '@grafana/grafana-foundation-sdk/common';
import * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import { DataqueryBuilder } from '@grafana/grafana-foundation-sdk/prometheus';
import { PanelBuilder as StatBuilder } from '@grafana/grafana-foundation-sdk/stat';
import { PanelBuilder as TextBuilder, TextMode } from '@grafana/grafana-foundation-sdk/text';
import { PanelBuilder as TimeseriesBuilder } from '@grafana/grafana-foundation-sdk/timeseries';
import { Seconds } from '@grafana/grafana-foundation-sdk/units';

/** The Prometheus that the viewer chose; provisioning names ours. */
const SOURCE = { type: 'prometheus', uid: '$datasource' } as const;

/** A quarter and a half of Grafana's grid of 24 columns. */
export const QUARTER = 6;
const HALF = 12;
const STAT_ROWS = 4;
const LINE_ROWS = 8;

/** Beyond this age a census is old (deploy/prometheus/recording.yml). */
const STALE_S = 30;

/** One query with what its lines are called. */
export interface Ask {
  expr: string;
  legend: string;
}

export interface PanelSpec {
  title: string;
  /** The question of an operator that this panel answers; shown as its description. */
  question: string;
  unit: string;
  asks: readonly Ask[];
  span?: number;
  /** From here on a value is worth a look (orange), or wrong (red). */
  look?: number;
  wrong?: number;
}

/** Figures as they are now. */
export function stat(spec: PanelSpec): StatBuilder {
  const panel = new StatBuilder()
    .title(spec.title)
    .description(spec.question)
    .datasource(SOURCE)
    .unit(spec.unit)
    .span(spec.span ?? QUARTER)
    .height(STAT_ROWS)
    .colorMode(common.BigValueColorMode.Value)
    .graphMode(common.BigValueGraphMode.None)
    .textMode(
      spec.asks.length > 1 || spec.asks[0]?.legend.includes('{{')
        ? common.BigValueTextMode.ValueAndName
        : common.BigValueTextMode.Value,
    )
    .reduceOptions(new common.ReduceDataOptionsBuilder().calcs(['lastNotNull']))
    .noValue('nothing is known')
    .thresholds(thresholds(spec));
  for (const [at, ask] of spec.asks.entries()) panel.withTarget(query(ask, at).instant());
  return panel;
}

/** How figures moved. `stacked`: parts of a whole. `logarithmic`: from seconds to days on one axis. */
export function lines(spec: PanelSpec & { stacked?: true; logarithmic?: true }): TimeseriesBuilder {
  const panel = new TimeseriesBuilder()
    .title(spec.title)
    .description(spec.question)
    .datasource(SOURCE)
    .unit(spec.unit)
    .min(0)
    .span(spec.span ?? HALF)
    .height(LINE_ROWS)
    .lineWidth(2)
    .fillOpacity(spec.stacked ? 30 : 0)
    .showPoints(common.VisibilityMode.Never)
    .legend(
      new common.VizLegendOptionsBuilder()
        .showLegend(true)
        .displayMode(common.LegendDisplayMode.Table)
        .placement(common.LegendPlacement.Right)
        .calcs(['lastNotNull', 'max'])
        // What never happened stands last.
        .sortBy('Max')
        .sortDesc(true),
    )
    .tooltip(new common.VizTooltipOptionsBuilder().mode(common.TooltipDisplayMode.Multi))
    .thresholds(thresholds(spec))
    .thresholdsStyle(
      new common.GraphThresholdsStyleConfigBuilder().mode(
        spec.look === undefined && spec.wrong === undefined
          ? common.GraphThresholdsStyleMode.Off
          : common.GraphThresholdsStyleMode.Dashed,
      ),
    );
  if (spec.stacked) panel.stacking(new common.StackingConfigBuilder().mode(common.StackingMode.Normal));
  if (spec.logarithmic)
    panel
      .min(1)
      .scaleDistribution(new common.ScaleDistributionConfigBuilder().type(common.ScaleDistribution.Log).log(10));
  for (const [at, ask] of spec.asks.entries()) panel.withTarget(query(ask, at).range());
  return panel;
}

export function note(title: string, question: string, markdown: string, span = QUARTER): TextBuilder {
  return new TextBuilder()
    .title(title)
    .description(question)
    .span(span)
    .height(STAT_ROWS)
    .mode(TextMode.Markdown)
    .content(markdown);
}

/** On every dashboard, first: whether what it shows of the fleet is the present. */
export function staleness(): StatBuilder {
  return stat({
    title: 'Age of the figures',
    question: `Is what this page shows of the fleet the present? Above ${STALE_S} s the database does not answer the reconcilers: the figures are the last truth. Empty: nobody counts.`,
    unit: Seconds,
    asks: [{ expr: 'min(counterstamp:census_age_seconds)', legend: 'youngest census' }],
    wrong: STALE_S,
  }).colorMode(common.BigValueColorMode.Background);
}

/** A dashboard of ours; links to the others in its head. */
export function page(
  uid: string,
  title: string,
  description: string,
  panels: readonly Builder<dashboard.Panel>[],
): dashboard.Dashboard {
  const builder = new dashboard.DashboardBuilder(`Counterstamp: ${title}`)
    .uid(uid)
    .description(description)
    .tags(['counterstamp'])
    .readonly()
    .time({ from: 'now-3h', to: 'now' })
    .refresh('30s')
    .tooltip(dashboard.DashboardCursorSync.Crosshair)
    .link(
      new dashboard.DashboardLinkBuilder('Counterstamp')
        .type(dashboard.DashboardLinkType.Dashboards)
        .tags(['counterstamp'])
        .asDropdown(false)
        .keepTime(true)
        .includeVars(true),
    )
    .withVariable(new dashboard.DatasourceVariableBuilder('datasource').label('Prometheus').type('prometheus'));
  for (const panel of panels) builder.withPanel(panel);
  return builder.build();
}

/** A counter's increase per minute. */
export function perMinute(by: string, counter: string): string {
  return `60 * sum by (${by}) (rate(${counter}[$__rate_interval]))`;
}

/** The value that the given share of observations stays below, of a histogram of counters. */
export function quantile(share: number, by: string, histogram: string): string {
  return `histogram_quantile(${share}, sum by (${by}, le) (rate(${histogram}_bucket[$__rate_interval])))`;
}

function query({ expr, legend }: Ask, at: number): DataqueryBuilder {
  return new DataqueryBuilder()
    .datasource(SOURCE)
    .refId(String.fromCharCode('A'.charCodeAt(0) + at))
    .expr(expr)
    .legendFormat(legend);
}

function thresholds({ look, wrong }: PanelSpec): dashboard.ThresholdsConfigBuilder {
  return new dashboard.ThresholdsConfigBuilder().mode(dashboard.ThresholdsMode.Absolute).steps([
    // Grafana's first step has no value: it holds from minus infinity on.
    { value: null, color: 'green' },
    ...(look === undefined ? [] : [{ value: look, color: 'orange' }]),
    ...(wrong === undefined ? [] : [{ value: wrong, color: 'red' }]),
  ]);
}
