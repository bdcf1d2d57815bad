import type { Invariant } from './invariants.ts';
import type { RuleName } from './rules.ts';

/** LIVE: a run neither stops nor is parked. SURFACE: an effect behind a closed run stays hidden. */
export type Violation = Invariant | 'LIVE' | 'SURFACE';

/** What the protocol loses with a rule. */
export interface Mutation {
  /** A row of protocol.md section 4 has the name that it has there. */
  name: string;
  off: readonly RuleName[];
  /** Each violation that must be found, with the environment in which it is looked for. None: other rules still hold alone; `holdsIn` says where. */
  expected: Partial<Record<Violation, string>>;
  holdsIn?: readonly string[];
}

const KEY = 'i-key-not-sent';
const SLOW = 'i-key-slower-than-declared';
const PLAIN = 'ii-network-unbounded';
const STRONG = 'ii-strong-lookup';
const ALIVE = 'live-one-worker';
const PEOPLE = 'vi-control-plane';

/** The table of protocol.md section 4. */
const SECTION_4: readonly Mutation[] = [
  // The digest of what is sent, compared in the commit, would catch a stale worker too.
  {
    name: 'swap-on-revision',
    off: ['swap-on-revision', 'sent-digest-in-commit'],
    expected: { I2: PEOPLE, I3: PEOPLE },
  },
  { name: 'swap', off: ['swap', 'sent-digest-in-commit'], expected: { I1: STRONG, I3: PEOPLE, I9: KEY } },
  { name: 'digest-in-commit', off: ['digest-in-commit', 'sent-digest-in-commit'], expected: { I2: PEOPLE } },
  { name: 'expiry-in-commit', off: ['expiry-in-commit'], expected: { I2: PLAIN } },
  { name: 'commit-before-send', off: ['commit-before-send'], expected: { I1: STRONG, I2: PEOPLE, I7: PEOPLE } },
  { name: 'only-winner-sends', off: ['only-winner-sends'], expected: { I1: STRONG, I7: PEOPLE, I8: SLOW } },
  { name: 'foreign-attempt-never-sends', off: ['foreign-attempt-never-sends'], expected: { I1: STRONG, I8: STRONG } },
  { name: 'attempt-in-same-transaction', off: ['attempt-in-same-transaction'], expected: { LIVE: ALIVE } },
  { name: 'frozen-bytes', off: ['frozen-bytes'], expected: { I3: PEOPLE } },
  { name: 'no-transport-retry', off: ['no-transport-retry'], expected: { I1: STRONG, I8: STRONG } },
  { name: 't0-before-begin', off: ['t0-before-begin'], expected: { I1: STRONG, I8: STRONG } },
  { name: 'deadline-check-before-send', off: ['deadline-check-before-send'], expected: { I8: STRONG } },
  { name: 'timeout-is-uncertain', off: ['timeout-is-uncertain'], expected: { I8: PLAIN } },
  { name: 'reject-only-if-first', off: ['reject-only-if-first'], expected: { I8: SLOW } },
  { name: 'conflict-is-uncertain', off: ['conflict-is-uncertain'], expected: { I8: SLOW } },
  { name: 'retry-only-idempotent', off: ['retry-only-idempotent'], expected: { I1: 'ii-pause-unbounded' } },
  { name: 'same-key-on-retry', off: ['same-key-on-retry'], expected: { I1: SLOW } },
  { name: 'settle-before-retry', off: ['settle-before-retry'], expected: { I1: SLOW } },
  { name: 'observed-at-before-read', off: ['observed-at-before-read'], expected: { I8: STRONG } },
  { name: 'retention-margin', off: ['retention-margin'], expected: { I1: SLOW } },
  { name: 'retry-rechecks-approval', off: ['retry-rechecks-approval'], expected: { I2: KEY } },
  { name: 'evidence-blocks-retry', off: ['evidence-blocks-retry'], expected: { I9: SLOW } },
  { name: 'person-absent-needs-settle', off: ['person-absent-needs-settle'], expected: { I8: STRONG } },
  { name: 'final-status-only', off: ['final-status-only'], expected: { I4: 'iv-accept-then-fail-no-key' } },
  { name: 'full-compare', off: ['full-compare'], expected: { I4: 'v-partial' } },
  { name: 'match-by-reference', off: ['match-by-reference'], expected: { I4: 'v-partial' } },
  { name: 'closure-audit', off: ['closure-audit'], expected: { SURFACE: 'surface-late-send' } },
  { name: 'reopen-on-evidence', off: ['reopen-on-evidence'], expected: { SURFACE: 'surface-late-send' } },
  { name: 'sweeper', off: ['sweeper'], expected: { LIVE: ALIVE } },
  { name: 'expirer', off: ['expirer'], expected: { LIVE: 'live-prefix' } },
  { name: 'park', off: ['park'], expected: { LIVE: ALIVE } },
  { name: 'bounded-verify', off: ['bounded-verify'], expected: { LIVE: ALIVE } },
];

/** The other rows of the first model's table: rules in pairs, and rules that others cover. */
const TOGETHER: readonly Mutation[] = [
  {
    name: 'revision-bumped',
    off: ['revision-bumped', 'sent-digest-in-commit'],
    expected: { I2: PEOPLE, I3: PEOPLE, I6: PEOPLE },
  },
  {
    name: 'revision-bumped + expected-state-in-swap',
    off: ['revision-bumped', 'expected-state-in-swap', 'sent-digest-in-commit'],
    expected: { I3: PEOPLE, I6: PEOPLE, I9: KEY },
  },
  {
    name: 'decision-is-a-commit + decision-in-commit',
    off: ['decision-is-a-commit', 'decision-in-commit'],
    expected: { I2: PEOPLE },
  },
  {
    name: 'retry-only-idempotent + settle-before-retry',
    off: ['retry-only-idempotent', 'settle-before-retry'],
    expected: { I1: STRONG },
  },
  {
    name: 'frozen-bytes + conflict-is-uncertain',
    off: ['frozen-bytes', 'conflict-is-uncertain'],
    expected: { I3: PEOPLE },
  },
  { name: 'evidence-in-commit', off: ['evidence-in-commit'], expected: { I9: SLOW } },
  { name: 'poller', off: ['poller'], expected: { LIVE: ALIVE } },
  {
    name: 'expected-state-in-swap',
    off: ['expected-state-in-swap'],
    expected: {},
    holdsIn: [KEY, 'ii-pause-unbounded-fenced'],
  },
  { name: 'decision-in-commit', off: ['decision-in-commit'], expected: {}, holdsIn: [PEOPLE] },
  { name: 'decision-is-a-commit', off: ['decision-is-a-commit'], expected: {}, holdsIn: [PEOPLE] },
  { name: 'sent-digest-in-commit', off: ['sent-digest-in-commit'], expected: {}, holdsIn: [PEOPLE] },
  {
    name: 'late-outcome-recorded',
    off: ['late-outcome-recorded'],
    expected: {},
    holdsIn: [KEY, 'ii-pause-unbounded-fenced'],
  },
  {
    name: 'closed-stays-closed',
    off: ['closed-stays-closed'],
    expected: {},
    holdsIn: [KEY, 'ii-pause-unbounded-fenced'],
  },
  { name: 'sweep-grace', off: ['sweep-grace'], expected: {}, holdsIn: [KEY, 'ii-pause-unbounded-fenced'] },
];

/** Rules that the first model left out. */
const EXTENSIONS: readonly Mutation[] = [
  { name: 'not-sent-means-no-byte', off: ['not-sent-means-no-byte'], expected: { I1: STRONG, I8: STRONG } },
  { name: 'not-sent-only-if-every-attempt', off: ['not-sent-only-if-every-attempt'], expected: { I8: KEY } },
  { name: 'retry-safe-needs-key', off: ['retry-safe-needs-key'], expected: { I1: 'iii-retry-safe-without-key' } },
  { name: 'early-sweep-proves-nothing', off: ['early-sweep-proves-nothing'], expected: { I1: STRONG, I8: STRONG } },
  { name: 'retry-refused-recorded', off: ['retry-refused-recorded'], expected: { LIVE: ALIVE } },
  { name: 'bounded-looks', off: ['bounded-looks'], expected: { LIVE: ALIVE } },
  { name: 'resource-free-in-commit', off: ['resource-free-in-commit'], expected: { I10: 'vii-two-runs' } },
  { name: 'hold-in-commit', off: ['hold-in-commit'], expected: { I11: 'vii-two-runs-hold' } },
  {
    name: 'person-absent-needs-fence',
    off: ['person-absent-needs-fence'],
    expected: { I8: 'ii-pause-unbounded-fenced' },
  },
  { name: 'end-before-absence-read', off: ['end-before-absence-read'], expected: { I8: 'ii-pause-unbounded-fenced' } },
  { name: 'reversal-audit', off: ['reversal-audit'], expected: { SURFACE: 'surface-reversal' } },
];

/** The protocol in a world worse than it assumes: what it then cannot promise, and the model must show. */
const ASSUMPTIONS: readonly Mutation[] = [
  { name: 'without-A1', off: [], expected: { I1: 'without-A1', I8: 'without-A1' } },
  { name: 'without-A2', off: [], expected: { I1: 'without-A2', I8: 'without-A2' } },
  {
    name: 'without-A5',
    off: [],
    expected: { I1: 'without-A5', I2: 'without-A5', I7: 'without-A5', I8: 'without-A5', I9: 'without-A5' },
  },
];

export const MUTATIONS: readonly Mutation[] = [...SECTION_4, ...TOGETHER, ...EXTENSIONS, ...ASSUMPTIONS];
