import { STATES, type State, transitionRule, verifyChain } from '@counterstamp/manifest-core';
import type { Finding } from './checks.ts';
import { equalJson } from './equal-json.ts';
import { microseconds, payloadOf, type RunHistory, record } from './history.ts';

/** H1: revisions are 1..n without a gap, each event starts from where the one before led, and the row stands where the last one led. */
export function unbrokenRevisions({ run, events }: RunHistory): Finding<'H1'>[] {
  const found: ReturnType<typeof unbrokenRevisions> = [];
  let expected = 1;
  let state: string | null = null;
  for (const event of events) {
    if (event.revision !== expected)
      found.push({ code: 'revision_gap', message: `revision ${expected} is missing: ${event.revision} follows` });
    if (event.from !== state)
      found.push({
        code: 'from_differs',
        message: `revision ${event.revision} starts from ${event.from ?? 'nothing'}, but the run was ${state ?? 'not there yet'}`,
      });
    expected = event.revision + 1;
    state = event.to;
  }
  if (events.length === 0) found.push({ code: 'no_events', message: 'the run has a row and no event' });
  else if (run.revision !== expected - 1 || run.state !== state)
    found.push({
      code: 'row_behind',
      message: `the row is ${run.state} at revision ${run.revision}, the last event led to ${state} at ${expected - 1}`,
    });
  return found;
}

/** H2: every move is in the table of legal moves, and was made by a service that may make it. */
export function legalMoves({ events }: RunHistory): Finding<'H2'>[] {
  const found: ReturnType<typeof legalMoves> = [];
  for (const { revision, from, to, trigger, actor } of events) {
    const rule = from === null || isState(from) ? transitionRule(from, trigger) : undefined;
    const move = `revision ${revision}: ${from ?? 'nothing'} → ${to} on ${trigger}`;
    if (rule?.to !== to) found.push({ code: 'illegal_move', message: `${move} is no legal move` });
    else if (!(rule.by as readonly string[]).includes(serviceOf(actor)))
      found.push({ code: 'wrong_actor', message: `${move} may not be made by ${actor}` });
  }
  return found;
}

function isState(text: string): text is State {
  return (STATES as readonly string[]).includes(text);
}

/** A principal acts through the api. */
function serviceOf(actor: string): string {
  const [kind = ''] = actor.split('/', 1);
  return kind === 'principal' ? 'api' : kind;
}

/**
 * H12: the chain of events holds, and what stands beside it is what it recorded: the row's steering columns, each attempt as it was
 * dispatched and as it was closed, each decision, each observation.
 */
export function chainIntact(history: RunHistory): Finding<'H12'>[] {
  const found: ReturnType<typeof chainIntact> = [];
  for (const fault of verifyChain(history.events, history.run.chain_head)) {
    switch (fault.kind) {
      case 'revision_gap': // H1 names it.
        break;
      case 'payload_changed':
        found.push({ code: fault.kind, message: `the payload of revision ${fault.revision} is not what was hashed` });
        break;
      case 'event_changed':
        found.push({ code: fault.kind, message: `revision ${fault.revision} is not what was hashed` });
        break;
      case 'link_broken':
        found.push({
          code: fault.kind,
          message: `revision ${fault.revision} does not name the hash of the one before`,
        });
        break;
      case 'head_differs':
        found.push({
          code: fault.kind,
          message: `the row's chain head is ${fault.expected ?? 'nothing'}, the last event's hash ${fault.found ?? 'nothing'}`,
        });
        break;
    }
  }
  for (const message of [...rowFaults(history), ...attemptFaults(history), ...factFaults(history)])
    found.push({ code: 'record_differs', message });
  return found;
}

const STEERING = ['action_revision', 'decisions_sufficient', 'retry_allowed', 'parked_reason', 'stop_reason'] as const;

/** Columns that an event set, and in which the row says something else. */
function rowFaults({ run, events }: RunHistory): string[] {
  const folded = Object.assign({}, ...events.map((event) => payloadOf(event).set)) as Record<string, unknown>;
  return STEERING.filter((name) => Object.hasOwn(folded, name) && !equalJson(folded[name], run[name])).map(
    (name) => `the row's ${name} is ${JSON.stringify(run[name])}, its events made it ${JSON.stringify(folded[name])}`,
  );
}

/** Attempts that are not what their dispatch and their outcome recorded. */
function attemptFaults({ events, attempts }: RunHistory): string[] {
  const faults: string[] = [];
  const compare = (whose: string, names: readonly string[], is: object, was: Record<string, unknown>) => {
    const now = record(is);
    for (const name of names)
      if (!equalJson(now[name], was[name]))
        faults.push(`${whose}: ${name} is ${JSON.stringify(now[name])}, recorded was ${JSON.stringify(was[name])}`);
  };
  const dispatches = events.filter((event) => event.to === 'executing');
  for (const event of dispatches)
    if (!attempts.some((attempt) => attempt.revision === event.revision))
      faults.push(`the attempt of the dispatch at revision ${event.revision} is missing`);
  for (const attempt of attempts) {
    const whose = `attempt ${attempt.n}`;
    const dispatch = dispatches.find((event) => event.revision === attempt.revision);
    if (dispatch === undefined) {
      faults.push(`${whose} has no dispatch: revision ${attempt.revision} is none`);
      continue;
    }
    const bound = ['attempt_id', 'action_digest', 'request_digest', 'idempotency_key', 'call_deadline'];
    compare(whose, bound, attempt, payloadOf(dispatch).refs);
    if (microseconds(attempt.started_at) !== Number(dispatch.at_us))
      faults.push(`${whose}: started_at is ${attempt.started_at}, not the time of revision ${dispatch.revision}`);
    const outcome = events
      .map((event) => record(payloadOf(event).refs.attempt))
      .find((refs) => refs.attempt_id === attempt.attempt_id);
    compare(whose, ['status', 'provider_ref'], attempt, outcome ?? { status: 'started', provider_ref: null });
  }
  return faults;
}

/** Decisions and observations that are not what an event recorded. */
function factFaults({ events, approvals, observations }: RunHistory): string[] {
  const faults: string[] = [];
  const decisions = approvals.flatMap((approval) => approval.decisions);
  for (const decision of decisions) {
    const event = events.find((one) => one.revision === decision.revision);
    const trigger = decision.decision === 'reject' ? 'approval_rejected' : 'decision_recorded';
    const recorded =
      event?.trigger === trigger &&
      event.actor === `principal/${decision.principal_id}` &&
      payloadOf(event).refs.decision_id === decision.decision_id;
    if (!recorded) faults.push(`decision ${decision.decision_id} is not what revision ${decision.revision} recorded`);
  }
  for (const event of events) {
    const { decision_id, observation, verdict } = payloadOf(event).refs;
    if (decision_id !== undefined && !decisions.some((decision) => decision.decision_id === decision_id))
      faults.push(`decision ${JSON.stringify(decision_id)} of revision ${event.revision} is missing`);
    const seen = observations.find((one) => one.revision === event.revision);
    // A verdict is kept as an observation, whole in its event.
    const recorded = verdict === undefined ? observation : { kind: 'person', ...record(verdict) };
    if (!equalJson(shape(seen), shape(recorded)))
      faults.push(`the observation of revision ${event.revision} is not what was recorded`);
  }
  return faults;
}

/** What an observation says, without its body: numbers there are spelled as the database likes. */
function shape(observation: unknown): Record<string, unknown> {
  const { kind = null, provider_ref = null } = record(observation);
  return { kind, provider_ref };
}
