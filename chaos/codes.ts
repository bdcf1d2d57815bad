import { type End, KINDS } from './kinds.ts';
import type { Cell } from './matrix.ts';

/**
 * What may come of a cell, in the words of protocol.md section 5, and what each asserts. Beside it every cell asserts: at most one effect, one event
 * per revision, terminal or parked, the same key and bytes on every send of one run, and a clean history.
 */
export const CODES = {
  A: 'repeated by somebody, one event per revision, completes',
  S: 'no influence',
  L: 'the stopped worker loses the swap, says so, and sends nothing',
  'A+L': 'one worker commits, the other loses the swap',
  W: 'one dispatch, one send',
  'W by other': 'one dispatch, one send, by another executor',
  'one W, one L': 'one executor dispatches, the other loses the swap',
  'second waits, L': 'the second executor waits for the lock and loses',
  O: 'swept to uncertain; the effect is found',
  'O, 0 sends': 'swept to uncertain, absent once settled: with a key one retry, same key and bytes; without one parked',
  X: 'the deadline check fails, nothing is sent; then as O, 0 sends',
  'late send':
    'stopped between check and write, it sends late: with a key no second effect; without one parked, one effect, an alarm',
  E: 'the late outcome is kept as evidence, nothing is overwritten',
  'W or O, 0 sends':
    'the commit came before the restart or did not: sent once, or swept and never sent by that attempt',
  'W, outcome retried': 'sent once; the outcome is tried again until the database answers, or the sweeper took over',
  returns: 'the second hint finds nothing to do',
  'O, n = 2': 'the second attempt is swept as well; absent: parked, no third',
  'X or replay': 'the second attempt sends nothing, or replays: at most one effect',
  'one row': 'one piece of evidence of one attempt',
  'form lost': 'nothing was judged, the run is still parked',
  '409': 'the form is outdated: refused, nothing is overwritten',
  'clear error': 'the form is judged or refused with an error; the run is parked or judged, never both',
  'one wins, one 409': 'one form is judged, the other refused',
} as const;
export type CellCode = keyof typeof CODES;

export interface SeenAttempt {
  n: number;
  status: string;
  instance_id: string;
}

/** What is known after a cell. */
export interface Aftermath {
  end: End['state'] | 'open';
  reason: string | null;
  events: readonly { revision: number; from: string | null; to: string; trigger: string }[];
  attempts: readonly SeenAttempt[];
  /** Requests at the provider that carry the run. */
  sends: readonly { idempotency_key: string | null; body_sha256: string | null }[];
  /** Effects in the provider's books. */
  effects: number;
  /** Pieces of evidence that the first attempt left after its run had moved on. */
  late_evidence: number;
  /** Instance of the process that met the point. */
  victim: string | null;
  /** Messages of that process about the run, after it met the point. */
  victim_said: readonly string[];
  /** Outcome of the victim's own send, as it logged it. */
  victim_outcome: string | null;
  /** Messages of all processes of the service about the run. */
  service_said: readonly string[];
  /** Revision when the run had settled, and after the stopped process had gone on. */
  revision_settled: number;
  revision_last: number;
  /** Answers to the person's forms: HTTP statuses, `lost` without one. */
  forms: readonly (number | 'lost')[];
}

const LOST = 'another worker committed first; looking again';
const IDLE = 'nothing to do here for this run';
const KEPT = 'the run moved on before the answer came; the answer is kept as evidence';
const AGAIN = 'the outcome is not recorded yet; trying again';

/** How the cell's run must end, for any code that lets it go its way. */
function usualEnd({ row, kind }: Cell): End {
  const { seen } = KINDS[kind];
  switch (row.way) {
    case 'expiry':
      return { state: 'expired', reasons: ['approval_expired'], sends: [0, 0], effects: [0, 0] };
    case 'retry':
      return { ...seen, sends: [2, 2] };
    case 'doubt':
      // The executor whose answer was held back says in the end what it got.
      return orLate(seen);
    case 'verdict':
      return { state: 'parked', reasons: [], sends: [1, 1], effects: [0, 0] };
    default:
      return seen;
  }
}

/** Everything about the aftermath that is not as the cell's code says; empty when all is. */
export function judge(cell: Cell, after: Aftermath): string[] {
  return [...everyCell(after), ...byCode(cell, after)];
}

function everyCell(after: Aftermath): string[] {
  const faults: string[] = [];
  after.events.forEach((event, i) => {
    if (event.revision !== i + 1) faults.push(`event ${i + 1} has revision ${event.revision}`);
  });
  if (after.effects > 1) faults.push(`${after.effects} effects`);
  if (after.end === 'open') faults.push('neither terminal nor parked');
  if (new Set(after.sends.map((send) => `${send.idempotency_key} ${send.body_sha256}`)).size > 1)
    faults.push('the sends differ in key or bytes');
  return faults;
}

function byCode(cell: Cell, after: Aftermath): string[] {
  const { row, kind, code } = cell;
  const hasKey = KINDS[kind].workflow === 'refund';
  const usual = usualEnd(cell);
  const swept = after.events.some((event) => event.trigger === 'attempt_overdue');
  const first = after.attempts[0];
  const isSweeper = row.point.startsWith('sweep.');
  switch (code) {
    case 'A':
    case 'S':
      return ended(after, usual);
    case 'L':
      return [
        ...ended(after, usual),
        ...untouched(after, usual),
        // A sweeper that loses says nothing: the other one did.
        ...need(isSweeper || said(after.victim_said, LOST, IDLE), 'the stopped worker does not say that it lost'),
        ...need(row.service !== 'executor' || first?.instance_id !== after.victim, 'the stopped executor dispatched'),
      ];
    case 'A+L':
    case 'one W, one L':
      return [
        ...ended(after, usual),
        ...need(isSweeper || said(after.service_said, LOST, IDLE), 'nobody says that it lost'),
        ...need(row.service !== 'executor' || after.attempts.length === usual.sends[0], 'more than one attempt'),
      ];
    case 'second waits, L':
      return [...ended(after, usual), ...need(after.attempts.length === usual.sends[0], 'more than one attempt')];
    case 'W':
      return ended(after, usual);
    case 'W by other':
      return [
        ...ended(after, usual),
        ...need(first !== undefined && first.instance_id !== after.victim, 'the killed executor dispatched'),
      ];
    case 'O':
      return [
        ...ended(after, usual),
        ...need(swept, 'the attempt was not swept'),
        ...need(first?.status === 'uncertain', `attempt 1 is ${first?.status}, not uncertain`),
      ];
    case 'O, 0 sends':
    case 'X':
      return [
        ...ended(after, KINDS[kind].unsent),
        ...need(swept, 'the attempt was not swept'),
        ...need(first?.status === 'uncertain', `attempt 1 is ${first?.status}, not uncertain`),
        ...need(first?.instance_id === after.victim, 'attempt 1 is not the victim’s'),
        ...need(after.attempts.length === (hasKey ? 2 : 1), `${after.attempts.length} attempts`),
        ...(code === 'X'
          ? [
              ...untouched(after),
              ...need(
                after.victim_outcome === null || after.victim_outcome === 'not_sent',
                `the stopped executor’s outcome is ${after.victim_outcome}`,
              ),
              ...need(after.victim_said.length > 0, 'the stopped executor says nothing'),
            ]
          : []),
      ];
    case 'late send': {
      const { unsent } = KINDS[kind];
      return [
        ...ended(after, { ...orLate(unsent), sends: [unsent.sends[0] + 1, unsent.sends[1] + 1], effects: [1, 1] }),
        ...need(swept, 'the attempt was not swept'),
        ...need(after.attempts.length === (hasKey ? 2 : 1), `${after.attempts.length} attempts`),
      ];
    }
    case 'E':
      return [
        ...ended(after, orLate(usual)),
        ...need(swept, 'the attempt was not swept'),
        ...untouched(after, usual),
        ...need(after.late_evidence === 1, `${after.late_evidence} pieces of late evidence`),
        ...need(said(after.victim_said, KEPT), 'the stopped executor does not say that its answer is kept'),
      ];
    case 'W or O, 0 sends':
      return swept ? ended(after, KINDS[kind].unsent) : ended(after, usual);
    case 'W, outcome retried':
      return [
        ...ended(after, usual),
        ...need(after.attempts.length === usual.sends[0], `${after.attempts.length} attempts`),
        ...need(swept || said(after.victim_said, AGAIN), 'the outcome was neither tried again nor swept'),
      ];
    case 'returns':
      return [
        ...ended(after, usual),
        ...need(!swept, 'the attempt was swept'),
        ...need(after.attempts.length === usual.sends[0], `${after.attempts.length} attempts`),
      ];
    case 'O, n = 2':
      return [
        ...ended(after, { state: 'parked', reasons: ['effect_not_found'], sends: [1, 1], effects: [0, 0] }),
        ...need(swept, 'the attempt was not swept'),
        ...need(after.attempts.length === 2, `${after.attempts.length} attempts`),
      ];
    case 'X or replay':
      return [
        ...ended(after, { state: 'parked', reasons: ['effect_not_found'], sends: [1, 2], effects: [0, 1] }),
        ...need(after.attempts.length === 2, `${after.attempts.length} attempts`),
        ...untouched(after),
      ];
    case 'one row':
      return [...ended(after, usual), ...need(after.late_evidence === 1, `${after.late_evidence} pieces of evidence`)];
    case 'form lost':
      return [
        ...need(after.end === 'parked', `the run is ${after.end}`),
        ...need(after.forms[0] === 'lost', 'the form was answered'),
      ];
    case '409':
      return [...need(after.forms.includes(409), `answers: ${after.forms.join(', ')}`), ...untouched(after)];
    case 'one wins, one 409':
      return need(
        after.forms.length === 2 && after.forms.includes(200) && after.forms.includes(409),
        `answers: ${after.forms.join(', ')}`,
      );
    case 'clear error': {
      const [answer] = after.forms;
      const judged = after.events.some((event) => event.trigger.startsWith('person_'));
      return [
        ...need(
          answer === 200 || (typeof answer === 'number' && answer >= 409),
          `the form was answered with ${answer}`,
        ),
        ...need(answer !== 200 || judged, 'answered 200 and not judged'),
      ];
    }
  }
}

function ended(after: Aftermath, end: End): string[] {
  const within = (n: number, [least, most]: readonly [number, number]) => n >= least && n <= most;
  return [
    ...need(after.end === end.state, `ended ${after.end} (${after.reason}), not ${end.state}`),
    ...need(
      end.reasons.length === 0 || (after.reason !== null && end.reasons.includes(after.reason)),
      `the reason is ${after.reason}, not ${end.reasons.join(' or ')}`,
    ),
    ...need(within(after.sends.length, end.sends), `${after.sends.length} sends, not ${end.sends.join(' to ')}`),
    ...need(within(after.effects, end.effects), `${after.effects} effects, not ${end.effects.join(' to ')}`),
  ];
}

/** What a late answer says may stand as the reason of a parked run by then. */
function orLate(end: End): End {
  return end.reasons.length === 0 ? end : { ...end, reasons: [...end.reasons, 'late_effect_found'] };
}

/** The process that went on after everything was settled changed nothing of the run; one that is parked may be told what it knows. */
function untouched(after: Aftermath, end?: End): string[] {
  return need(
    after.revision_last === after.revision_settled || end?.state === 'parked',
    `revision ${after.revision_settled} became ${after.revision_last} when the stopped process went on`,
  );
}

function said(lines: readonly string[], ...wanted: string[]): boolean {
  return lines.some((line) => wanted.includes(line));
}

function need(holds: boolean, otherwise: string): string[] {
  return holds ? [] : [otherwise];
}
