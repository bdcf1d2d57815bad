import type { RunView } from '@counterstamp/api-contract';
import { digestOf, type RunId } from '@counterstamp/manifest-core';
import { differences, expectedText, type Seen, seenText } from './compare.ts';
import type { DoorScenario, RunScenario, Scenario, Step, StoryScenario } from './scenario.ts';
import { createRun, READER, refusalOf, seedCase, type Tools, waitFor } from './tools.ts';

/** What came of one scenario. */
export interface Verdict {
  name: string;
  ok: boolean;
  expected: string;
  seen: string;
  differences: readonly string[];
  run_id?: RunId;
  /** The run's events, when something differs. */
  trail?: readonly string[];
  ms: number;
}

/** Plays one scenario to its end. Never rejects: what breaks is a difference. */
export async function play(scenario: Scenario, tools: Tools): Promise<Verdict> {
  const startedAt = performance.now();
  const verdict = await playKind(scenario, tools);
  return {
    ...verdict,
    name: scenario.name,
    ok: verdict.differences.length === 0,
    ms: Math.round(performance.now() - startedAt),
  };
}

type Played = Omit<Verdict, 'name' | 'ok' | 'ms'>;

function playKind(scenario: Scenario, tools: Tools): Promise<Played> {
  switch (scenario.kind) {
    case 'run':
      return playRun(scenario, tools);
    case 'door':
      return playDoor(scenario, tools);
    case 'story':
      return playStory(scenario, tools);
  }
}

async function playStory({ expected, tell }: StoryScenario, tools: Tools): Promise<Played> {
  try {
    const seen = await tell(tools);
    return { expected, seen, differences: seen === expected ? [] : ['what was seen is not what is expected'] };
  } catch (error) {
    return broken(expected, error, undefined, tools);
  }
}

async function playRun(scenario: RunScenario, tools: Tools): Promise<Played> {
  const expected = expectedText(scenario.expected);
  let run_id: RunId | undefined;
  try {
    const id = tools.unique();
    await seedCase(tools, id, scenario.world);
    const created = await createRun(tools, id, scenario.asked);
    run_id = created.run_id;
    const refused = scenario.steps === undefined ? [] : await takeSteps(run_id, id, scenario.steps, tools);
    const seen = await look(run_id, `pay_order_${id}`, refused, tools);
    const differing = differences(scenario.expected, seen);
    return {
      expected,
      seen: seenText(scenario.expected, seen),
      differences: differing,
      run_id,
      ...(differing.length === 0 ? {} : { trail: await trailOf(run_id, tools) }),
    };
  } catch (error) {
    return broken(expected, error, run_id, tools);
  }
}

/** What people do once the run is ready for it. @returns the answers to the steps that had to be refused. */
async function takeSteps(run_id: RunId, id: string, steps: readonly Step[], tools: Tools): Promise<string[]> {
  const refused: string[] = [];
  const decided = new Set<number>();
  let shown: RunView | undefined;
  for (const step of steps) {
    const isReady = readiness(step, decided);
    const run = await waitFor(tools, run_id, isReady);
    if (!isReady(run)) break; // It stopped before: the comparison says so.
    const answer = await refusalOf(
      act(step, step.kind === 'decide' && step.shown === 'before' ? (shown ?? run) : run, id, tools),
    );
    const wanted = 'refused' in step ? step.refused : undefined;
    if (wanted === undefined) {
      if (answer !== 'accepted') throw new Error(`${step.kind} was refused: ${answer}`);
      if (step.kind === 'decide' && run.action_revision !== null)
        decided.add(run.action_revision * (step.by.endsWith('_2') ? -1 : 1));
    } else {
      const after = await tools.as(READER).getRun(run_id);
      refused.push(after.state === run.state ? answer : `${answer}, but then ${after.state}`);
    }
    shown = run;
  }
  return refused;
}

/** When a step can be taken. */
function readiness(step: Step, decided: ReadonlySet<number>): (run: RunView) => boolean {
  switch (step.kind) {
    case 'decide': {
      const mine = step.by.endsWith('_2') ? -1 : 1;
      return (run) =>
        run.state === (step.once ?? 'awaiting_approval') &&
        (step.refused !== undefined || !decided.has((run.action_revision ?? 0) * mine));
    }
    case 'propose':
      // The rules need no help while they work; what they fixed may be superseded.
      return (run) =>
        run.state === 'awaiting_approval' ||
        (run.proposer === 'external' &&
          run.state === 'collecting' &&
          run.evidence_complete &&
          run.proposals.every((proposal) => proposal.refusal !== null));
    case 'read':
    case 'cancel':
    case 'by_hand':
      return (run) => run.state === 'awaiting_approval';
  }
}

function act(step: Step, run: RunView, id: string, tools: Tools): Promise<unknown> {
  switch (step.kind) {
    case 'read':
      return tools.as(step.by).getRun(run.run_id);
    case 'decide':
      return decide(run, step, tools);
    case 'propose':
      return tools.as('shop_north/requester').propose(run.run_id, {
        proposal: {
          operation: 'refund_order',
          order_id: `order_${id}`,
          amount_minor: step.amount_minor,
          currency: 'USD',
          reason: 'damaged_item',
        },
      });
    case 'cancel':
      return tools.as(step.by).cancelRun(run.run_id, { reason: 'no longer wanted' });
    case 'by_hand':
      return tools.sandbox.refundByHand(`pay_order_${id}`, step.amount_minor);
  }
}

/** Decides on exactly what the run shows, unless the step says otherwise. */
function decide(run: RunView, step: Extract<Step, { kind: 'decide' }>, tools: Tools): Promise<unknown> {
  if (run.approval === null) throw new Error('the run waits for an approval that it does not show');
  const { approval_id, approval_digest, action_digest, action_revision } = run.approval;
  return tools.decide(step.by, run.run_id, {
    approval_id,
    decision: step.decision,
    approval_digest,
    action_digest: step.digest === 'another' ? digestOf('cs.action.v1', 'another action') : action_digest,
    action_revision,
    ...(step.decision === 'reject' ? { reason: 'not today' } : {}),
  });
}

async function look(run_id: RunId, payment_id: string, refused: readonly string[], tools: Tools): Promise<Seen> {
  const run = await waitFor(tools, run_id, () => false);
  const [{ events }, requests, refunds] = await Promise.all([
    tools.as(READER).runEvents(run_id),
    tools.sandbox.requests(payment_id),
    tools.sandbox.refunds(payment_id),
  ]);
  return {
    state: run.state,
    stop: run.stop_reason?.code,
    parked: run.parked_reason !== null,
    trail: events.map((event) => event.to),
    message: run.stop_reason?.message ?? '',
    refused,
    refunds: refunds.map((refund) => refund.amount),
    requests: requests.length,
    approvedBytes: requests.every((request) => isApproved(run, request.body)),
  };
}

/** The bytes that arrived are those whose digest the attempt recorded, for the action whose digest was approved. */
function isApproved(run: RunView, body: string | null): boolean {
  const { action, approval } = run;
  if (body === null || action === null || approval === null) return false;
  const sent = digestOf('cs.request-bytes.v1', body);
  return (
    digestOf('cs.action.v1', action.canonical) === approval.action_digest &&
    run.attempts.some((attempt) => attempt.request_digest === sent && attempt.action_digest === approval.action_digest)
  );
}

async function trailOf(run_id: RunId, tools: Tools): Promise<string[]> {
  const { events } = await tools.as(READER).runEvents(run_id);
  return events.map(
    ({ revision, at, from, to, trigger, actor }) => `${revision} ${at} ${from ?? '·'} → ${to} (${trigger} by ${actor})`,
  );
}

async function playDoor(scenario: DoorScenario, tools: Tools): Promise<Played> {
  const wanted = scenario.tries.map(({ what, refused }) => ({ what, answer: refused }));
  const expected = `${answersText(wanted)}, no run, nothing sent`;
  try {
    const id = tools.unique();
    await seedCase(tools, id);
    const requester = tools.as('shop_north/requester');
    const answers: { what: string; answer: string }[] = [];
    for (const { what, members } of scenario.tries) {
      // Written by hand: a number such as -4200 or 42.5, or a member twice, must leave as it stands here.
      const body = `{"request_id":"case_${id}","input":{"order_id":"order_${id}"${members === '' ? '' : `,${members}`}}}`;
      answers.push({ what, answer: await refusalOf(requester.createRun(new TextEncoder().encode(body))) });
    }
    const { runs } = await tools.as(READER).listRuns({ limit: 200 });
    const made = runs.filter((run) => run.request_id === `case_${id}`).length;
    const sent = (await tools.sandbox.requests(`pay_order_${id}`)).length;
    return {
      expected,
      seen: `${answersText(answers)}, ${made === 0 ? 'no run' : `${made} runs`}, ${sent === 0 ? 'nothing sent' : `${sent} requests`}`,
      differences: [
        ...answers.flatMap(({ what, answer }, index) =>
          answer === wanted[index]?.answer ? [] : [`${what}: the answer is ${answer}`],
        ),
        ...(made === 0 ? [] : ['a run was made']),
        ...(sent === 0 ? [] : ['a request was sent']),
      ],
    };
  } catch (error) {
    return broken(expected, error, undefined, tools);
  }
}

/** `400 amount_not_positive (zero, negative) at /input/…`: the same answer once, and a place that all of them name once. */
function answersText(answers: readonly { what: string; answer: string }[]): string {
  const places = new Set(answers.map(({ answer }) => answer.split(' at ')[1] ?? ''));
  const [place = ''] = places.size === 1 ? places : [];
  const whats = new Map<string, string[]>();
  for (const { what, answer } of answers) {
    const text = place === '' ? answer : (answer.split(' at ')[0] ?? answer);
    whats.set(text, [...(whats.get(text) ?? []), what]);
  }
  const texts = [...whats].map(([answer, list]) => `${answer} (${list.join(', ')})`);
  return `${texts.join(', ')}${place === '' ? '' : `, each at ${place}`}`;
}

async function broken(expected: string, error: unknown, run_id: RunId | undefined, tools: Tools): Promise<Played> {
  const why = error instanceof Error ? error.message : String(error);
  const trail = run_id === undefined ? undefined : await trailOf(run_id, tools).catch(() => undefined);
  return {
    expected,
    seen: why,
    differences: [why],
    ...(run_id === undefined ? {} : { run_id }),
    ...(trail === undefined ? {} : { trail }),
  };
}
