import type { ApprovalCard, RunView } from '@counterstamp/api-contract';
import { z } from 'zod';
import { actionLines, askedOf, untrustedLines } from './card-lines.ts';
import { printable, table } from './table.ts';

/** The body of an observation of kind `person`, as the database writes it. */
const PersonBody = z.looseObject({
  verdict: z.string(),
  evidence: z.string(),
  observed_at: z.string().nullish(),
  effect: z.unknown().optional(),
});

/** Who wrote what stands below it: nobody whose word counts. */
export const UNTRUSTED_TITLE =
  'Written by the caller, a model or a customer: not part of what is approved, and not checked';

/** What there is of a run's approval beside the run itself; `not_bound`: why its facts must not be shown. */
export type CardView = ApprovalCard | { not_bound: string } | undefined;

/** A run as a person reads it: where it stands and why, what is asked for, and everything that happened to it. Pure. */
export function runPage(run: RunView, card?: CardView): string {
  return [
    heading(run),
    ...cardSections(run, card),
    section('Decisions', decisionLines(run)),
    section('Attempts', attemptLines(run)),
    section('Observations', observationLines(run)),
    section('Answers that came late', lateLines(run)),
    section('Conditions of a dispatch, judged now', guardLines(run)),
    section('Deadlines', deadlineLines(run)),
  ]
    .filter((part) => part !== '')
    .join('\n\n');
}

function cardSections(run: RunView, card: CardView): string[] {
  if (card === undefined) return [section('Action', actionLines(askedOf(run)))];
  if ('not_bound' in card) return [section('Action', [`Not shown: ${printable(card.not_bound)}`])];
  return [section('Action', actionLines(card)), section(UNTRUSTED_TITLE, untrustedLines(card.untrusted))];
}

export function section(title: string, lines: readonly string[]): string {
  return lines.length === 0 ? '' : `${title}\n${lines.map((line) => `  ${line}`.trimEnd()).join('\n')}`;
}

/** Where the run stands, why, and what comes next. */
export function heading(run: RunView): string {
  const waits =
    run.parked_reason !== null ? ' (parked for a person)' : run.retry_allowed ? ' (a retry is recorded)' : '';
  const lines = [
    `${run.run_id}  ${run.state}${waits}`,
    `  request ${run.request_id} of ${run.tenant_id}, generation ${run.generation}, workflow ${run.workflow} ${run.workflow_version}, revision ${run.revision}, since ${run.state_since}`,
  ];
  if (run.stop_reason !== null) lines.push(`  Why: ${run.stop_reason.code}: ${printable(run.stop_reason.message)}`);
  if (run.erased_at !== null)
    lines.push(`  Erased: input, context, proposals and evidence, at ${run.erased_at}; their digests stay.`);
  if (run.next !== null) lines.push(`  Next: ${run.next}`);
  if (run.parked_reason !== null) lines.push(`  Settle it: counterstamp reconcile ${run.run_id}`);
  return lines.join('\n');
}

function decisionLines(run: RunView): string[] {
  const decisions = run.approval?.decisions ?? [];
  if (decisions.length === 0) return run.approval === null ? [] : ['none yet'];
  return table(
    ['AT', 'DECISION', 'BY', 'METHOD', 'REASON'],
    decisions.map((one) => [one.decided_at, one.decision, one.principal_id, one.method, one.reason ?? '']),
  ).split('\n');
}

/** Every physical send, in order. */
export function attemptLines(run: Pick<RunView, 'attempts'>): string[] {
  if (run.attempts.length === 0) return [];
  return table(
    ['N', 'STARTED', 'CALL DEADLINE', 'STATUS', 'PROVIDER REF', 'BY', 'ANSWER'],
    run.attempts.map((one) => [
      String(one.n),
      one.started_at,
      one.call_deadline,
      one.status,
      one.provider_ref ?? '',
      one.instance_id,
      oneLine(one.response),
    ]),
  ).split('\n');
}

/** What own reads and persons saw, in order. */
export function observationLines(run: Pick<RunView, 'observations'>): string[] {
  if (run.observations.length === 0) return [];
  return table(
    ['AT', 'SEEN', 'PROVIDER REF', 'DETAIL'],
    run.observations.map((one) => [
      one.at,
      one.kind,
      one.provider_ref ?? '',
      one.kind === 'person' ? verdictText(one.body) : oneLine(one.body),
    ]),
  ).split('\n');
}

/** What a person said, in their own words. */
function verdictText(body: unknown): string {
  const said = PersonBody.safeParse(body);
  if (!said.success) return oneLine(body);
  const { verdict, evidence, observed_at, effect } = said.data;
  const looked = observed_at == null ? '' : ` (looked at ${observed_at})`;
  return `${verdict.replaceAll('_', ' ')}: ${evidence}${looked}${effect == null ? '' : ` ${JSON.stringify(effect)}`}`;
}

/** Answers whose attempt was closed without them; one that was applied forbids to call the effect absent. */
export function lateLines(run: Pick<RunView, 'evidence'>): string[] {
  const late = run.evidence.filter((one) => one.kind === 'late_effect' || one.kind === 'late_outcome');
  if (late.length === 0) return [];
  return table(
    ['AT', 'WHAT', 'OF', 'ANSWER'],
    late.map((one) => [
      one.observed_at,
      one.kind === 'late_effect' ? 'the provider accepted' : 'no clear answer',
      one.source_ref,
      oneLine(one.facts),
    ]),
  ).split('\n');
}

/** Each condition of a dispatch, with pass or fail. */
export function guardLines(run: Pick<RunView, 'guards'>): string[] {
  return table(
    [],
    run.guards.map(({ guard, pass, detail }) => [pass ? '✓ pass' : '✗ fail', guard, detail]),
  ).split('\n');
}

function deadlineLines(run: RunView): string[] {
  const lines = [`run              ${run.deadlines.run}`];
  if (run.deadlines.approval !== null) lines.push(`approval         ${run.deadlines.approval}`);
  if (run.wake_at !== null) lines.push(`looked at again  ${run.wake_at}`);
  return lines;
}

/** Characters of a recorded answer on a page; `--json` has all of it. */
const DETAIL_MAX = 160;

function oneLine(value: unknown): string {
  const text = plainly(value);
  return text.length <= DETAIL_MAX ? text : `${text.slice(0, DETAIL_MAX - 1)}…`;
}

/** `reason: timeout, after: 3` for a flat object; whatever is nested stays JSON. */
function plainly(value: unknown): string {
  if (value === null) return '';
  const isFlat = typeof value === 'object' && Object.values(value).every((one) => typeof one !== 'object');
  if (!isFlat || Array.isArray(value)) return JSON.stringify(value);
  return Object.entries(value)
    .map(([name, one]) => `${name}: ${String(one)}`)
    .join(', ');
}
