import { describe, expect, test } from 'vitest';
import type { Invariant } from './invariants.ts';
import type { ProviderKind } from './provider.ts';
import { RULES, type Rule } from './rules.ts';
import { Script } from './script.ts';
import type { Shape } from './simulation.ts';

interface Case {
  /** Named as in protocol.md section 4. */
  name: string;
  without: readonly Rule[];
  breaks: Invariant;
  provider: ProviderKind;
  shape?: Partial<Shape>;
  /** A1 does not hold: what a process does that is stopped for longer than Z between check and write. */
  zombie?: boolean;
  excused?: readonly Invariant[];
  /** Follow the closed runs to their last audit. */
  audits?: boolean;
  script: (s: Script) => Promise<void>;
}

/** From the dispatch commit to the instant at which absence counts: D + settle. */
const SETTLED_MS = 3_700;
const state = (s: Script) => s.run().state;
const parked = (s: Script) => () => s.run().parked_reason !== null;

/** The worker of the first attempt stands still right before it would write, until others have settled the run. */
async function stoppedBeforeTheWrite(s: Script): Promise<void> {
  await s.upTo(/^executor-1 writes/);
  s.pause('executor-1');
  await s.until(parked(s), 'a parked run');
}

/** The answer to the dispatch commit reaches its worker only after others have parked the run. */
async function acknowledgedTooLate(s: Script): Promise<void> {
  await s.upTo(/^executor-1 ← dispatch/);
  s.pause('executor-1');
  await s.until(parked(s), 'a parked run');
}

/** The first attempt's request waits in the network until `at` ms after its dispatch; what the reconciler sees before is nothing. */
async function firstRequestOnItsWay(s: Script): Promise<void> {
  await s.upTo(/^executor-1 writes/);
  s.hold(/^the request arrives$/);
  await s.happens(/^executor-1 writes/);
}

/** A request that left as late as A1 permits, and whose worker is gone: it will arrive after everybody else has begun to look. */
async function requestThatLeftLate(s: Script): Promise<void> {
  await s.upTo(/^executor-1 ← dispatch/);
  await s.pass(1_790);
  await s.upTo(/^executor-1 writes/);
  s.hold(/^the request arrives$/);
  await s.pass(499);
  await s.happens(/^executor-1 writes/);
  s.kill('executor-1');
  await s.until(() => state(s) === 'needs_reconciliation');
}

const sinceDispatch = (s: Script) => s.world.scheduler.nowMs - (s.run().attemptRows[0]?.startedMs ?? 0);

const CASES: readonly Case[] = [
  {
    name: 'commit-before-send',
    without: ['commit-before-send'],
    breaks: 'I2',
    provider: 'strong',
    script: async (s) => {
      await s.upTo(/^executor-1 → dispatch r1$/);
      await s.happens(/^executor-1 → dispatch r1$/, 'lost-before');
    },
  },
  {
    name: 'only-winner-sends',
    without: ['only-winner-sends'],
    breaks: 'I1',
    provider: 'strong',
    script: async (s) => {
      await s.upTo(/^executor-1 takes execute/);
      s.world.send('execute', { run_id: s.run().made.run_id, revision: s.run().revision });
      s.hold(/^executor-1 → dispatch/);
      await s.until(
        () =>
          s.world.queue.length === 0 &&
          s.world.scheduler.tasks.some(({ name }) => name.startsWith('executor-1 → dispatch')),
      );
      s.pause('executor-1');
      s.release();
      s.world.send('execute', { run_id: s.run().made.run_id, revision: s.run().revision });
      s.hold(/^executor-1 → dispatch/);
      await s.until(() => state(s) === 'completed', 'a completed run');
      s.resume('executor-1');
    },
  },
  {
    name: 'foreign-attempt-never-sends',
    without: ['foreign-attempt-never-sends'],
    breaks: 'I1',
    provider: 'strong',
    script: async (s) => {
      await s.upTo(/^executor-1 dispatch.written/);
      await s.until(() => s.world.provider.effects.length > 0);
      s.kill('executor-1');
      s.world.send('execute', { run_id: s.run().made.run_id, revision: s.run().revision });
    },
  },
  {
    name: 'attempt-in-same-transaction',
    without: ['attempt-in-same-transaction'],
    breaks: 'LIVE',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 → dispatch/);
      await s.happens(/^executor-1 → dispatch/);
      s.kill('executor-1', false);
    },
  },
  {
    name: 'frozen-bytes',
    without: ['frozen-bytes'],
    breaks: 'I3',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 writes/);
      for (const about of s.world.provider.cases) about.currentAmount = 1;
    },
  },
  {
    name: 'no-transport-retry',
    without: ['no-transport-retry'],
    breaks: 'I1',
    provider: 'strong',
    script: async (s) => s.until(() => state(s) === 'completed'),
  },
  {
    name: 't0-before-begin',
    without: ['t0-before-begin'],
    breaks: 'I8',
    provider: 'strong',
    script: async (s) => {
      await acknowledgedTooLate(s);
      await s.operatorDecides('waived');
      s.resume('executor-1');
    },
  },
  {
    name: 'deadline-check-before-send',
    without: ['deadline-check-before-send'],
    breaks: 'I8',
    provider: 'strong',
    script: async (s) => {
      await acknowledgedTooLate(s);
      await s.operatorDecides('waived');
      s.resume('executor-1');
    },
  },
  {
    name: 'timeout-is-uncertain',
    without: ['timeout-is-uncertain'],
    breaks: 'I8',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 ← answer/);
      await s.happens(/^executor-1 ← answer/, 'lost');
    },
  },
  {
    name: 'not-sent-means-no-byte',
    without: ['not-sent-means-no-byte'],
    breaks: 'I1',
    provider: 'strong',
    script: async (s) => {
      await s.upTo(/^executor-1 ← dispatch/);
      await s.pass(1_700);
      await s.upTo(/^executor-1 writes/);
      s.hold(/^the request arrives$/);
      await s.happens(/^executor-1 writes/);
      // The call ends without an answer while its request is still on its way.
      await s.until(() => s.run().attempts === 2 || sinceDispatch(s) >= 2_600);
    },
  },
  {
    name: 'conflict-is-uncertain',
    without: ['conflict-is-uncertain'],
    breaks: 'I8',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^the request arrives$/);
      await s.happens(/^the request arrives$/, 'doubled');
      await s.happens(/^executor-1 ← answer 201/, 'lost');
      await s.happens(/^the request arrives again/, 'in-progress');
    },
  },
  {
    name: 'reject-only-if-first',
    without: ['reject-only-if-first', 'clear-rejection-of-the-first-alone'],
    breaks: 'I8',
    provider: 'slow',
    script: async (s) => {
      await firstRequestOnItsWay(s);
      await s.until(() => s.run().attempts === 2, 'a retry');
      const [first] = s.world.scheduler.tasks.filter(({ name }) => name === 'the request arrives');
      await s.until(() => s.world.scheduler.tasks.filter(({ name }) => name === 'the request arrives').length === 2);
      const second = s.world.scheduler.tasks.filter(({ name }) => name === 'the request arrives')[1];
      if (first === undefined || second === undefined) throw new Error('two requests should be on their way');
      s.simulation.runTask(second, 'rejected');
      await s.simulation.drain();
      await s.until(() => state(s) !== 'executing');
      s.simulation.runTask(first);
      await s.simulation.drain();
    },
  },
  {
    name: 'retry-only-idempotent',
    without: ['retry-only-idempotent'],
    breaks: 'I1',
    provider: 'strong',
    zombie: true,
    script: async (s) => {
      await s.upTo(/^executor-1 writes/);
      s.pause('executor-1');
      await s.until(() => state(s) === 'completed' || s.run().parked_reason !== null);
      s.resume('executor-1');
    },
  },
  {
    name: 'same-key-on-retry',
    without: ['same-key-on-retry'],
    breaks: 'I1',
    provider: 'slow',
    script: async (s) => {
      await firstRequestOnItsWay(s);
      await s.until(() => s.world.scheduler.tasks.filter(({ name }) => name === 'the request arrives').length === 2);
      s.release();
    },
  },
  {
    name: 'settle-before-retry',
    without: ['settle', 'settle-in-commit'],
    breaks: 'I1',
    provider: 'slow',
    script: async (s) => {
      await firstRequestOnItsWay(s);
      await s.until(() => state(s) === 'needs_reconciliation');
      // The first look after the call deadline shows nothing, and the request arrives right after it.
      await s.until(() => s.run().retry_allowed || sinceDispatch(s) >= 2_700);
      s.pause('executor-1', 'executor-2');
      await s.happens(/^the request arrives$/);
      s.hold(/^the request arrives$/, /^executor-2 writes/);
      await s.pass(8_150 - sinceDispatch(s));
      s.resume('executor-2');
      await s.until(() => s.run().attempts === 2 || state(s) === 'completed' || s.run().parked_reason !== null);
      if (s.run().attempts < 2) return;
      // Everything as late as A1 permits: acknowledged, written, and then in the network.
      await s.upTo(/^executor-2 ← retry/);
      await s.pass(1_790);
      await s.until(() => s.world.scheduler.tasks.some(({ name }) => name.startsWith('executor-2 writes')));
      await s.pass(500);
      await s.pass(4_499);
    },
  },
  {
    name: 'observed-at-before-read',
    without: ['observed-at-before-read'],
    breaks: 'I8',
    provider: 'strong',
    script: async (s) => {
      await requestThatLeftLate(s);
      s.pause('reconciler-1', 'reconciler-2');
      // Just before the request must have arrived.
      await s.pass(3_280 - sinceDispatch(s));
      s.simulation.people.look(s.run());
      await s.happens(/^olga reads/);
      await s.pass(SETTLED_MS - 3_280);
      await s.happens(/^olga decides/, 'waived');
    },
  },
  ...(['retention-margin', 'retention-in-commit'] as const).map(
    (rule): Case => ({
      name: rule,
      without: [rule],
      breaks: 'I1',
      provider: 'slow',
      script: async (s) => {
        await firstRequestOnItsWay(s);
        await s.until(() => s.run().retry_allowed, 'a recorded retry');
        s.pause('executor-1', 'executor-2');
        await s.happens(/^the request arrives$/);
        s.hold(/^the request arrives$/);
        await s.pass(13_000 - sinceDispatch(s));
        s.resume('executor-2');
        await s.until(() => s.run().attempts === 2 || !s.run().retry_allowed);
        if (s.run().attempts < 2) return;
        await s.until(() => s.world.scheduler.tasks.some(({ name }) => name === 'the request arrives'));
        await s.pass(4_499);
      },
    }),
  ),
  {
    name: 'final-status-only',
    without: ['final-status-only'],
    breaks: 'I4',
    provider: 'pending',
    script: async (s) => {
      s.hold(/settles$/);
      await s.until(() => s.run().verification_waits > 0 || state(s) === 'completed');
    },
  },
  {
    name: 'full-compare',
    without: ['full-compare'],
    breaks: 'I4',
    provider: 'partial',
    script: async (s) => {
      await s.upTo(/^the request arrives/);
      await s.happens(/^the request arrives/, 'other-amount');
    },
  },
  {
    name: 'match-by-reference',
    without: ['match-by-reference'],
    breaks: 'I4',
    provider: 'partial',
    script: async (s) => {
      await s.upTo(/^the request arrives/);
      await s.happens(/^the request arrives/, 'request-lost');
      for (const about of s.world.provider.cases) s.world.provider.bookLookalike(about);
    },
  },
  {
    name: 'sweeper',
    without: ['sweeper'],
    breaks: 'LIVE',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 ← dispatch/);
      s.kill('executor-1');
    },
  },
  {
    name: 'expirer',
    without: ['expirer'],
    breaks: 'LIVE',
    provider: 'key',
    script: async (s) => {
      s.simulation.people.away = true;
      await s.until(() => state(s) === 'awaiting_approval');
    },
  },
  {
    name: 'park',
    without: ['park'],
    breaks: 'LIVE',
    provider: 'strong',
    script: async (s) => {
      await s.upTo(/^the request arrives/);
      await s.happens(/^the request arrives/, 'request-lost');
    },
  },
  {
    name: 'bounded-verify',
    without: ['bounded-verify'],
    breaks: 'LIVE',
    provider: 'pending',
    script: async (s) => {
      await s.until(() => s.world.provider.effects.length > 0);
      s.drop(/settles$/);
    },
  },
  {
    name: 'bounded-looks',
    without: ['bounded-looks'],
    breaks: 'LIVE',
    provider: 'strong',
    script: async (s) => {
      await s.upTo(/^the request arrives/);
      await s.happens(/^the request arrives/, 'request-lost');
      s.world.provider.readsFail = true;
    },
  },
  {
    name: 'swap-on-revision, which digest-in-commit and decisions-in-commit stand behind',
    without: ['swap-on-revision', 'digest-in-commit', 'decisions-in-commit'],
    breaks: 'I2',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 → dispatch/);
      s.hold(/^executor-1 → dispatch/);
      s.simulation.people.amend(s.run());
      s.pause('executor-2');
      await s.until(() => state(s) === 'awaiting_approval' && s.run().decisions_sufficient, 'an approved amendment');
    },
  },
  {
    name: 'swap (blind write)',
    without: ['swap'],
    breaks: 'I1',
    excused: ['I6'],
    provider: 'strong',
    script: async (s) => {
      await s.upTo(/^executor-1 → dispatch/);
      s.pause('executor-1');
      s.hold(/^executor-1 → dispatch/);
      s.world.send('execute', { run_id: s.run().made.run_id, revision: s.run().revision });
      await s.until(() => state(s) === 'completed', 'a completed run');
      s.resume('executor-1');
    },
  },
  {
    name: 'decisions-in-commit',
    without: ['decisions-in-commit'],
    breaks: 'I2',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 → dispatch/);
      s.world.store.revoke('prn_ada', 'approver');
    },
  },
  {
    name: 'digest-in-commit',
    without: ['digest-in-commit'],
    breaks: 'I2',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 → dispatch/);
      // Somebody with access to the table changes the action that was approved.
      for (const action of s.run().actions.values()) action.canonical = action.canonical.replace('4200', '9900');
    },
  },
  {
    name: 'expiry-in-commit',
    without: ['expiry-in-commit'],
    breaks: 'I2',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 → dispatch/);
      s.pause('reconciler-1', 'reconciler-2');
      await s.pass(60_001);
    },
  },
  {
    name: 'hold-in-commit',
    without: ['hold-in-commit'],
    breaks: 'HOLD',
    provider: 'key',
    script: async (s) => {
      await s.upTo(/^executor-1 → dispatch/);
      s.world.store.setHold('sandbox-payments', 'maintenance');
      await s.until(() => s.run().state === 'executing' || s.world.trace.at(-1)?.includes('defer') === true);
    },
  },
  {
    name: 'one-in-flight',
    without: ['one-in-flight'],
    breaks: 'ONE_IN_FLIGHT',
    provider: 'key',
    shape: { runs: 2, sharedResource: true },
    script: async (s) => {
      s.hold(/^the request arrives/);
      await s.until(() => s.run(1).state === 'completed' || s.run(2).state === 'completed');
    },
  },
  {
    name: 'other-generation',
    without: ['other-generation'],
    breaks: 'I1',
    provider: 'strong',
    zombie: true,
    excused: ['I8', 'ONE_IN_FLIGHT'],
    shape: { executors: 2 },
    script: async (s) => {
      await stoppedBeforeTheWrite(s);
      await s.operatorDecides('waived');
      await s.until(
        () => s.world.store.audits.some(({ what, code }) => what === 'closure_audit' && code === 'looked'),
        'a closure look',
      );
      s.simulation.people.succeed(s.run());
      await s.upTo(/^executor-\d → dispatch r2/);
      s.hold(/→ dispatch r2/);
      s.resume('executor-1');
      await s.until(() => state(s) === 'needs_reconciliation', 'a reopened run');
      // Nothing on the resource is in doubt any more, only its own older generation.
      s.run().resource_key = 'elsewhere';
    },
  },
  {
    name: 'successor-after-closure-look',
    without: ['successor-after-closure-look'],
    breaks: 'I1',
    provider: 'strong',
    zombie: true,
    excused: ['I8'],
    script: async (s) => {
      await stoppedBeforeTheWrite(s);
      await s.operatorDecides('waived');
      const successor = s.simulation.people.succeed(s.run());
      if (successor !== undefined) await s.until(() => s.run(2).state === 'completed');
      s.resume('executor-1');
    },
  },
  {
    name: 'retry-rechecks-approval',
    without: ['retry-rechecks-approval'],
    breaks: 'I2',
    provider: 'key',
    shape: { approvalLifeMs: 8_000 },
    script: async (s) => {
      await s.upTo(/^the request arrives/);
      await s.happens(/^the request arrives/, 'request-lost');
      await s.upTo(/^executor-\d → retry/);
      s.pause('reconciler-1', 'reconciler-2');
      await s.pass(8_000);
    },
  },
  {
    name: 'evidence-blocks-retry',
    without: ['evidence-blocks-retry'],
    breaks: 'I9',
    provider: 'slow',
    script: async (s) => {
      await s.upTo(/^executor-1 writes/);
      s.hold(/^the request arrives$/, /^executor-1 call times out/);
      await s.happens(/^executor-1 writes/);
      await s.upTo(/^reconciler-\d → retry_recorded/);
      s.hold(/→ retry_recorded/, /^executor-1 call times out/);
      await s.happens(/^the request arrives$/);
      await s.until(() => s.run().evidence.some(({ kind }) => kind === 'late_effect'), 'late evidence');
    },
  },
  {
    name: 'person-absent-needs-settle',
    without: ['person-absent-needs-settle'],
    breaks: 'I8',
    provider: 'strong',
    script: async (s) => {
      await requestThatLeftLate(s);
      await s.operatorDecides('waived');
    },
  },
  {
    name: 'person-absent-needs-fence',
    without: ['person-absent-needs-fence'],
    breaks: 'I8',
    provider: 'strong',
    zombie: true,
    script: async (s) => {
      await stoppedBeforeTheWrite(s);
      await s.operatorDecides();
      s.resume('executor-1');
    },
  },
  {
    name: 'reopen-on-evidence',
    without: ['reopen-on-evidence'],
    breaks: 'SURFACE',
    provider: 'strong',
    zombie: true,
    excused: ['I8', 'I9'],
    audits: true,
    script: async (s) => {
      await stoppedBeforeTheWrite(s);
      await s.operatorDecides('waived');
      s.resume('executor-1');
    },
  },
  {
    name: 'closure-audit',
    without: ['closure-audit'],
    breaks: 'SURFACE',
    provider: 'strong',
    zombie: true,
    excused: ['I8', 'I9'],
    audits: true,
    script: async (s) => {
      await stoppedBeforeTheWrite(s);
      await s.operatorDecides('waived');
      s.resume('executor-1');
      await s.happens(/^executor-1 writes/);
      // Nobody is left who could hear the answer.
      s.kill('executor-1');
    },
  },
];

/** One more of closure-audit: a settled effect that the provider undoes. */
const REVERSAL: Case = {
  name: 'closure-audit of a completed run',
  without: ['closure-audit'],
  breaks: 'SURFACE',
  provider: 'pending',
  audits: true,
  script: async (s) => {
    await s.until(() => state(s) === 'completed');
    for (const effect of s.world.provider.effects) Object.assign(effect, { status: 'failed', undone: true });
  },
};
const ALL: readonly Case[] = [...CASES, REVERSAL];

async function play(
  { provider, shape = {}, zombie = false, excused = [], audits = false, script }: Case,
  without: readonly Rule[],
) {
  const s = new Script({ provider, shape, excused, without, assumptions: { a1: !zombie } });
  try {
    await script(s);
  } catch (error) {
    // A schedule that has broken an invariant need not go on as it was written.
    if (s.simulation.violation === null) throw error;
  }
  // What an assumption that does not hold leaves behind is judged by the invariant that is named alone.
  return await s.rest({ audits, judged: !zombie && excused.length === 0 });
}

describe('without the rule', () => {
  test.each(ALL)('$name, $breaks is broken', async (one) => {
    const { violation, trace } = await play(one, one.without);
    expect(violation?.invariant, `${violation?.detail}\n${trace.join('\n')}`).toBe(one.breaks);
  });
});

describe('with the rule', () => {
  test.each(ALL)('$name, the same schedule breaks nothing', async (one) => {
    const { violation, trace } = await play(one, []);
    expect(violation, trace.join('\n')).toBeNull();
  });
});

test('every rule that can be taken away has a schedule that fails without it', () => {
  expect([...new Set(CASES.flatMap(({ without }) => without))].sort()).toEqual([...RULES].sort());
});
