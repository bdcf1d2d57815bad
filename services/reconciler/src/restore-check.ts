import type { Observation } from '@counterstamp/connectors';
import { isClosed, type JsonValue, keepText, type State } from '@counterstamp/manifest-core';
import { connect, knownRuns, type UnsentRun, unsentRuns } from '@counterstamp/manifest-store';
import type { Environment } from '@counterstamp/stage-runtime';
import { openSystems, type Systems, workflowOf } from '@counterstamp/workflows';
import { parseConfig } from './config.ts';

/** Looks under way at a time: the external systems serve others as well. */
const LOOKS_AT_ONCE = 8;

/** An effect in an external system's books, from its list or export. */
export interface BookedEffect {
  provider: string;
  ref: string;
  /** Our tag; null when the record carries none. */
  run_id: string | null;
  /** By the names that the action has for them. */
  fields: Readonly<Record<string, JsonValue>>;
}

/** What the world knows of a run, and this database does not. */
export type RestoreFinding =
  /** An open run without a send has its effect already: dispatched, it would act again. */
  | { kind: 'acted_already'; run: UnsentRun; refs: string[]; match: string }
  /** An open run equals an effect of a run that is lost: the same request, most likely, made anew. */
  | { kind: 'same_as_lost'; run: UnsentRun; refs: string[]; lost: string }
  /** The look showed nothing: neither that there is an effect nor that there is none. */
  | { kind: 'cannot_tell'; run: UnsentRun; reason: string }
  /** A run was closed without a send, and its effect is there. It acts no more, and its record will never say so. */
  | { kind: 'closed_without_it'; run_id: string; state: State; stop_reason: string | null; refs: string[] }
  /** An effect names a run that this database does not have. */
  | { kind: 'run_lost'; run_id: string; refs: string[] };

export interface RestoreReport {
  /** Whether every open run may go on as far as the look-ups and the given effects show. */
  safe: boolean;
  /** Runs that were looked up. */
  looked_up: number;
  /** Open runs of which it is not fixed yet what they would do: nothing can be looked up for them. */
  undecided: number;
  /** Runs with a send on record that have not ended: the fleet looks each of them up by itself. */
  recovering: number;
  /** Effects that were compared; null when none were given. */
  effects: number | null;
  findings: RestoreFinding[];
}

export interface RestoreQuestion {
  /** Also runs that were closed since this instant; null: open ones alone. */
  since: string | null;
  /** What the external systems list; null: their look-up by our reference alone. */
  effects: readonly BookedEffect[] | null;
}

/**
 * What happened in the world and is not in this database, after a restore or a failover that lost commits: looks up every open run that has no send on
 * record, with the reconciler's own configuration, and compares what the external systems list. Reads alone, whoever runs meanwhile.
 */
export async function checkRestored(
  env: Environment,
  question: RestoreQuestion,
): Promise<{ ok: true; report: RestoreReport } | { ok: false; faults: string[] }> {
  const parsed = parseConfig(env);
  if (!parsed.ok) return parsed;
  const { own, durations, database_url } = parsed.config;
  const systems = openSystems(own, durations);
  const sql = connect(database_url, { max: 1, applicationName: 'counterstamp restore check' });
  try {
    const { runs, recovering } = await unsentRuns(sql, question.since);
    const tags = [...new Set((question.effects ?? []).flatMap(({ run_id }) => (run_id === null ? [] : [run_id])))];
    const known = await knownRuns(sql, tags);
    const looks = new Map<string, Observation>();
    for (let i = 0; i < runs.length; i += LOOKS_AT_ONCE)
      await Promise.all(
        runs.slice(i, i + LOOKS_AT_ONCE).map(async (run) => {
          if (run.action !== null) looks.set(run.run_id, await look(run, systems));
        }),
      );
    return { ok: true, report: judgeRestored({ runs, recovering, looks, known, systems, effects: question.effects }) };
  } finally {
    await sql.end({ timeout: 2 });
  }
}

/** Not through the dispatcher: it judges by the run's state, which is what a restored run cannot be believed about. */
async function look(run: UnsentRun, systems: Systems): Promise<Observation> {
  const workflow = workflowOf(systems, run);
  if (workflow === undefined || run.action === null)
    return { kind: 'unknown', reason: `workflow ${run.workflow} version ${run.workflow_version} is not installed` };
  try {
    return await workflow.connector.observe(run.action.fields, {
      run_id: run.run_id,
      action_digest: run.action.digest,
      attempts: [],
      fields: workflow.verifiedFields,
    });
  } catch (error) {
    return {
      kind: 'unknown',
      reason: `connector_failed: ${error instanceof Error ? keepText(error.message, 200) : 'unknown'}`,
    };
  }
}

export interface RestoreFacts {
  runs: readonly UnsentRun[];
  recovering: number;
  /** By run; every run with an action has one. */
  looks: ReadonlyMap<string, Observation>;
  /** Runs that the given effects name, as far as the database has them. */
  known: ReadonlyMap<string, { state: State; has_attempt: boolean }>;
  effects: readonly BookedEffect[] | null;
  systems: Pick<Systems, 'workflows'>;
}

/** What follows from what was seen. Pure. */
export function judgeRestored({ runs, recovering, looks, known, effects, systems }: RestoreFacts): RestoreReport {
  const booked = effects ?? [];
  const lost = booked.filter(({ run_id }) => run_id !== null && !known.has(run_id));
  const findings: RestoreFinding[] = [];
  let undecided = 0;
  for (const run of runs) {
    const seen = looks.get(run.run_id);
    const tagged = booked.filter((effect) => effect.run_id === run.run_id).map(({ ref }) => ref);
    const refs = [...new Set([...refsOf(seen), ...tagged])];
    if (isClosed(run.state)) {
      if (refs.length > 0) findings.push(closed(run.run_id, run.state, run.stop_reason?.message ?? null, refs));
      else if (seen?.kind === 'unknown') findings.push({ kind: 'cannot_tell', run, reason: seen.reason });
      continue;
    }
    const same = lost.filter((effect) => isSameEffect(run, effect, systems));
    const [first] = same;
    if (refs.length > 0) findings.push({ kind: 'acted_already', run, refs, match: matchOf(seen) });
    else if (first !== undefined)
      findings.push({
        kind: 'same_as_lost',
        run,
        refs: same.map(({ ref }) => ref),
        lost: first.run_id ?? '',
      });
    else if (seen === undefined) undecided += 1;
    else if (seen.kind === 'unknown') findings.push({ kind: 'cannot_tell', run, reason: seen.reason });
  }
  const named = new Set(runs.map(({ run_id }): string => run_id));
  for (const [run_id, refs] of refsByRun(booked)) {
    const standing = known.get(run_id);
    if (standing === undefined) findings.push({ kind: 'run_lost', run_id, refs });
    else if (isClosed(standing.state) && !standing.has_attempt && !named.has(run_id))
      findings.push(closed(run_id, standing.state, null, refs));
  }
  const stopping: readonly RestoreFinding['kind'][] = ['acted_already', 'same_as_lost', 'cannot_tell'];
  return {
    safe: undecided === 0 && !findings.some(({ kind }) => stopping.includes(kind)),
    looked_up: looks.size,
    undecided,
    recovering,
    effects: effects === null ? null : effects.length,
    findings,
  };
}

function closed(run_id: string, state: State, stop_reason: string | null, refs: string[]): RestoreFinding {
  return { kind: 'closed_without_it', run_id, state, stop_reason, refs };
}

function refsOf(seen: Observation | undefined): string[] {
  if (seen?.kind !== 'found') return [];
  return 'effect' in seen ? [seen.effect.provider_ref] : seen.effects.map(({ provider_ref }) => provider_ref);
}

function matchOf(seen: Observation | undefined): string {
  return seen?.kind === 'found' ? seen.match : 'listed';
}

function refsByRun(effects: readonly BookedEffect[]): Map<string, string[]> {
  const refs = new Map<string, string[]>();
  for (const { run_id, ref } of effects)
    if (run_id !== null) refs.set(run_id, [...new Set([...(refs.get(run_id) ?? []), ref])]);
  return refs;
}

/** Whether an effect is what the run would do, in every compared field that the list shows: a person has to say whether it is the same request. */
function isSameEffect(
  run: UnsentRun,
  { provider, fields }: BookedEffect,
  systems: Pick<Systems, 'workflows'>,
): boolean {
  const workflow = workflowOf(systems, run);
  if (workflow === undefined || run.action === null || workflow.contract.name !== provider) return false;
  const action = run.action.fields;
  const shown = workflow.verifiedFields.filter((field) => Object.hasOwn(fields, field));
  return shown.length > 1 && shown.every((field) => fields[field] === action[field]);
}
