import type { Instance, RunView } from '@counterstamp/api-contract';
import { effectWasSeen } from '@counterstamp/manifest-core';
import { actionLines, askedOf } from './card-lines.ts';
import { attemptLines, guardLines, heading, lateLines, observationLines, section } from './run-page.ts';
import { table } from './table.ts';

/** The runs with an effect in doubt, each with what to do next and from when on an absence counts. Pure. */
export function doubtList(runs: readonly RunView[]): string {
  return runs.map((run) => `${run.run_id}\n${listLines(run).join('\n')}`).join('\n\n');
}

function listLines(run: RunView): string[] {
  const stands =
    run.parked_reason === null
      ? `being looked up${run.wake_at === null ? '' : `, next at ${run.wake_at}`}`
      : `parked: ${run.parked_reason}`;
  return table(
    [],
    [
      ['', stands, `request ${run.request_id}, workflow ${run.workflow}, revision ${run.revision}`],
      ['', 'since', run.state_since],
      ['', 'settles', settlesText(run)],
      ['', 'next', run.next ?? ''],
      ['', '', `counterstamp reconcile ${run.run_id}`],
    ],
  ).split('\n');
}

function settlesText({ settles_at, as_of }: Pick<RunView, 'settles_at' | 'as_of'>): string {
  if (settles_at === null) return 'no attempt that may have left';
  return settles_at <= as_of ? `since ${settles_at}` : `at ${settles_at}; an earlier look proves no absence`;
}

/** Everything that a person needs to judge an effect in doubt, and the commands that record it. Pure. */
export function doubtPage(run: RunView, instances: readonly Instance[]): string {
  return [
    heading(run),
    section('What was approved', actionLines(askedOf(run))),
    section('Attempts', attemptLines(run)),
    section('Observations', observationLines(run)),
    section('Answers that came late', lateLines(run)),
    section('Executors that may have sent', instanceLines(run, instances)),
    ...(run.state === 'needs_reconciliation' ? judgingLines(run, instances) : []),
    section('What you can record, in your own words', verdictLines(run)),
  ]
    .filter((part) => part !== '')
    .join('\n\n');
}

/** What a verdict rests on: of a run that is in doubt, and of no other. */
function judgingLines(run: RunView, instances: readonly Instance[]): string[] {
  return [
    section(
      'Conditions of “it did not land”, if you look now',
      guardLines({ guards: absenceConditions(run, instances) }),
    ),
    section('Times', [
      `as of       ${run.as_of}  (the time to give as --observed-at if you look now)`,
      `settles     ${settlesText(run)}`,
      '            The look must also come after the recorded end of each executor that sent + settle; once it is recorded, the time says so.',
    ]),
  ];
}

/** Instances of the attempts that may have left, in the order of the attempts. */
function sendersOf(run: RunView): string[] {
  return [...new Set(run.attempts.filter((one) => one.status !== 'not_sent').map((one) => one.instance_id))];
}

function instanceLines(run: RunView, instances: readonly Instance[]): string[] {
  const senders = sendersOf(run);
  if (senders.length === 0) return [];
  const known = new Map(instances.map((one) => [one.instance_id, one]));
  return table(
    ['INSTANCE', 'PROCESS', 'LAST HEARTBEAT', 'LEASE', 'END', 'FENCED'],
    senders.map((instance_id) => instanceRow(instance_id, known.get(instance_id), run.as_of)),
  ).split('\n');
}

function instanceRow(instance_id: string, instance: Instance | undefined, as_of: string): string[] {
  if (instance === undefined) return [instance_id, '', '', '', 'unknown here', 'no'];
  return [
    instance_id,
    processOf(instance),
    instance.beat_at,
    instance.lease,
    endOf(instance),
    isFenced(instance, as_of) ? 'yes' : instance.fenced_from === null ? 'no' : `from ${instance.fenced_from}`,
  ];
}

/** `pid on host`, where it is known. */
export function processOf({ host, pid }: Pick<Instance, 'host' | 'pid'>): string {
  return host === null || pid === null ? '' : `${pid} on ${host}`;
}

/** When and by whom an instance's end was recorded. */
export function endOf({ ended_at, ended_by, credential_rotated }: Instance): string {
  const how = credential_rotated ? ', credential rotated' : '';
  return ended_at === null ? 'not recorded' : `${ended_at} by ${ended_by ?? '?'}${how}`;
}

function isFenced({ fenced_from }: Instance, as_of: string): boolean {
  return fenced_from !== null && fenced_from <= as_of;
}

/** What protocol rule 20 asks of an absence that a person records, judged on what is shown. The database asks again. */
export function absenceConditions(
  run: RunView,
  instances: readonly Instance[],
): { guard: string; pass: boolean; detail: string }[] {
  const senders = sendersOf(run);
  const fenced = new Set(instances.filter((one) => isFenced(one, run.as_of)).map((one) => one.instance_id));
  const unfenced = senders.filter((one) => !fenced.has(one));
  const told =
    run.evidence.some((one) => one.kind === 'late_effect') || run.attempts.some((one) => one.status === 'succeeded');
  const seen = effectWasSeen(run.parked_reason);
  return [
    {
      guard: 'settled',
      pass: senders.length === 0 || (run.settles_at !== null && run.settles_at <= run.as_of),
      detail: senders.length > 0 && run.settles_at === null ? 'this API does not know the workflow' : settlesText(run),
    },
    {
      guard: 'no_evidence',
      pass: !told && !seen,
      detail: told
        ? 'the provider once said that it was applied'
        : seen
          ? 'a look found an effect of this run, see Observations: record that, or have the fleet look again'
          : withoutEvidence(run),
    },
    {
      guard: 'fenced',
      pass: unfenced.length === 0,
      detail:
        unfenced.length === 0
          ? 'no executor that sent for this run can send any more'
          : `still to be fenced: ${unfenced.join(', ')}; end the process, then \`counterstamp instance fence ID --evidence …\` if its end is not recorded by itself, or a second operator’s \`counterstamp verdict support ${run.run_id} --waive-fencing --revision ${run.revision} --reason …\``,
    },
  ];
}

/** A look that found something is no answer to a send, and still what a person must not overlook. */
function withoutEvidence({ observations }: RunView): string {
  return observations.some(({ kind }) => kind === 'found')
    ? 'no answer said that it was applied, but a look found an effect: see Observations'
    : 'nothing says that it was applied';
}

function verdictLines(run: RunView): string[] {
  if (run.state !== 'needs_reconciliation') return ['nothing: no effect of this run is in doubt'];
  const command = (verdict: string) =>
    `  counterstamp verdict ${run.run_id} ${verdict} --revision ${run.revision} --evidence "what you saw, and where"`;
  return [
    'It is there, as approved; the verifier then reads it for itself:',
    command('--landed'),
    'You looked after the time above, and it is not there:',
    command(`--did-not-land --observed-at ${run.as_of}`),
    'It is there, and different; the file says how ({"provider_ref":"…","status":"…","amount_minor":4100,"currency":"USD"}):',
    command('--landed-differently effect.json'),
    'You cannot tell:',
    command('--still-unknown'),
    'The fleet should look once more:',
    `  counterstamp reconcile ${run.run_id} --look-again`,
  ];
}
