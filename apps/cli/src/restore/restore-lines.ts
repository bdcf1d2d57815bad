import type { RestoreFinding, RestoreReport } from '@counterstamp/reconciler';
import { printable } from '../output/table.ts';

/** The report as a person reads it: what is dangerous first, each with the next step. */
export function restoreLines(report: RestoreReport): string[] {
  const { looked_up, undecided, recovering, effects, findings, safe } = report;
  const lines = [...findings].sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind)).flatMap(linesOf);
  const against = effects === null ? '' : `, beside ${count(effects, 'effect')} of the external systems`;
  return [
    ...lines.map(printable),
    ...(undecided === 0
      ? []
      : [
          `… ${count(undecided, 'run')} of which it is not fixed yet what they would do: under the hold they go as far as their approval. Check again then.`,
        ]),
    ...(recovering === 0
      ? []
      : [`… ${count(recovering, 'run')} with a send on record: the fleet looks them up by itself once it is up.`]),
    safe
      ? `✓ ${count(looked_up, 'run')} looked up${against}: no open run would act again.`
      : `✗ ${count(looked_up, 'run')} looked up${against}: keep the hold until nothing is named with ✗ or as not fixed yet.`,
    ...(effects === null
      ? ['Not compared, for want of --effects: what runs did that are not in this database at all.']
      : []),
  ];
}

const ORDER: readonly RestoreFinding['kind'][] = [
  'acted_already',
  'same_as_lost',
  'cannot_tell',
  'run_lost',
  'closed_without_it',
];

function linesOf(finding: RestoreFinding): string[] {
  switch (finding.kind) {
    case 'acted_already': {
      const { run, refs, match } = finding;
      return [
        `✗ ${run.run_id} (request ${run.request_id}) is ${run.state} here, and its effect is there already: ${refs.join(', ')} (${match}). Never let it be sent again:`,
        cancel(run.run_id, `performed before the restore: ${refs.join(', ')}`),
      ];
    }
    case 'same_as_lost': {
      const { run, refs, lost } = finding;
      return [
        `✗ ${run.run_id} (request ${run.request_id}) is ${run.state} and would do what ${lost}, which is not in this database, did: ${refs.join(', ')}. If it is the same request:`,
        cancel(run.run_id, `performed by ${lost} before the restore: ${refs.join(', ')}`),
      ];
    }
    case 'cannot_tell':
      return [
        `✗ ${finding.run.run_id} (request ${finding.run.request_id}) could not be looked up: ${finding.reason}. Check again.`,
      ];
    case 'run_lost':
      return [
        `! ${finding.refs.join(', ')} is of ${finding.run_id}, which is not in this database. Have its request made again under the hold, and cancel that run.`,
      ];
    case 'closed_without_it': {
      const why = finding.stop_reason === null ? '' : ` (${finding.stop_reason})`;
      return [
        `! ${finding.run_id} is ${finding.state} here${why}, and its effect is there: ${finding.refs.join(', ')}. Allow it no successor.`,
      ];
    }
  }
}

function cancel(run_id: string, reason: string): string {
  return `    counterstamp run cancel ${run_id} --reason "${reason}"`;
}

function count(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? '' : 's'}`;
}
