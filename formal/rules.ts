/**
 * The rules of protocol.md as switches. All on is the protocol; a mutation turns some off, in the model only: the facts that a guard is
 * given change, or the guard is not asked. The product's own code has no such switch.
 */
export const RULES = {
  swap: 'a commit names the row that it changes: a row that moved on is not overwritten (1)',
  'swap-on-revision': 'a commit swaps on the revision, not only on the state (1)',
  'expected-state-in-swap': 'the swap names the expected state as well (1)',
  'revision-bumped': 'every commit raises the revision by one (1)',
  'closed-stays-closed': 'no commit leaves a closed state, but for reopening (25)',
  'decision-is-a-commit': 'approve, reject, cancel are commits on the run (2)',
  'decision-in-commit': 'the dispatch counts the decisions under the row lock (5)',
  'digest-in-commit': 'the dispatch compares the stored bytes with the approved digest under the row lock (5)',
  'sent-digest-in-commit': 'the dispatch compares what it is about to send with the approved digest (5)',
  'expiry-in-commit': 'the dispatch reads the clock after the row lock and checks the expiry with it (5, 6)',
  'hold-in-commit': 'the dispatch checks holds under the lock that set_hold takes (5, 26)',
  'resource-free-in-commit':
    'the dispatch checks that no other run is in doubt on the resource, under a lock on it (5)',
  'commit-before-send': 'no byte leaves before the attempt is committed (5)',
  'only-winner-sends': 'who lost the swap, or does not know, sends nothing (5, 7)',
  'attempt-in-same-transaction': 'executing and the attempt row are one commit (5)',
  't0-before-begin': 'the worker’s clock starts before the commit begins (5)',
  'deadline-check-before-send': 'the call deadline is checked right before the write (5)',
  'frozen-bytes': 'what is sent are the bytes stored with the attempt (5)',
  'not-sent-means-no-byte': 'an attempt is not_sent only when no byte left; no answer is not that (8)',
  'not-sent-only-if-every-attempt': 'settle and key do not matter only while every attempt is not_sent (8)',
  'retry-safe-needs-key': 'an answer that permits the same request again counts with a key contract only (8)',
  'foreign-attempt-never-sends': 'a redelivered run in executing is never sent (9)',
  'no-transport-retry': 'the HTTP client sends once (10)',
  'same-key-on-retry': 'a retry carries the key of the first attempt (11)',
  'timeout-is-uncertain': 'no answer is uncertain, not failed (12)',
  'reject-only-if-first': 'a clear rejection ends the run only if every other attempt is not_sent (12)',
  'conflict-is-uncertain': 'a conflict about the key is no rejection (12)',
  'late-outcome-recorded': 'an outcome whose swap was lost is appended as evidence (14)',
  'evidence-blocks-retry': 'evidence of an effect forbids retry and absence (14)',
  'evidence-in-commit': 'that veto is checked inside the commit (14)',
  sweeper: 'orphans in executing are swept from the database (15)',
  'sweep-grace': 'the sweeper leaves an attempt to its own worker until deadline + grace (15)',
  'early-sweep-proves-nothing': 'a lost session lease is no proof that nothing was sent (15)',
  park: 'reconciliation by machine ends: settled absence and differences are parked (16, 18)',
  'bounded-looks': 'looks without a result are counted (16, 24)',
  'settle-before-retry': 'absence counts only after call deadline + settle (16, 17)',
  'observed-at-before-read': 'absence is dated before the read (17)',
  'retry-only-idempotent': 'no retry without a key contract (18)',
  'retry-rechecks-approval': 'a retry is a dispatch: approval, digest and expiry are checked again (19)',
  'retention-margin': 'the key must still be known when the retry arrives (19)',
  'retry-refused-recorded': 'a recorded retry that is refused for good is taken back (19)',
  'person-absent-needs-settle': 'a person’s “absent” needs settle as well (20)',
  'person-absent-needs-fence':
    'a person’s “absent” needs the end of every instance that could still send, or a waiver (20)',
  'end-before-absence-read': 'a fence covers a read only if the instance ended P + V before it (20)',
  'final-status-only': 'a pending effect is no match (21)',
  'full-compare': 'every declared field is compared (21)',
  'match-by-reference': 'only an effect with our reference is ours (16, 21)',
  'bounded-verify': 'verification waits are counted (21, 24)',
  poller: 'the sweeper hints due runs again (22)',
  expirer: 'unused approvals expire (23)',
  'reopen-on-evidence': 'evidence of an effect reopens a failed run (14, 25)',
  'closure-audit': 'a failed run is looked up again (25)',
  'reversal-audit': 'a completed run is looked up again while its settlement can turn (25)',
} as const;

export type RuleName = keyof typeof RULES;
export type Rules = Readonly<Record<RuleName, boolean>>;

const NAMES = Object.keys(RULES) as RuleName[];

/** The protocol with some rules taken away; with none, the protocol itself. */
export function protocolWithout(...removed: readonly RuleName[]): Rules {
  return Object.fromEntries(NAMES.map((name) => [name, !removed.includes(name)])) as Record<RuleName, boolean>;
}
