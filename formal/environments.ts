/**
 * Durations in ticks. A bound of n ticks means that at most n tick boundaries are crossed; settle (Z + P + V after the deadline) is tight in
 * this encoding. ε is less than a tick.
 */
export const TICKS = {
  /** D: from the dispatch commit to the end of the call. */
  call: 1,
  /** Z: pause between the deadline check and the write. */
  pause: 1,
  /** P: the provider processes or drops a request. */
  provider: 1,
  /** V: a processed request becomes visible to the look-up. */
  visibility: 1,
  /** G: the sweeper's grace. */
  grace: 1,
  /** R: the provider keeps keys. */
  retention: 8,
} as const;

/** Limits of the counted loops; small, because only reaching them matters. */
export const LIMITS = { verificationWaits: 1, lookUps: 1 } as const;

/** What a world around the protocol is like: the provider, the people, and how much may go wrong. */
export interface Environment {
  // The provider.
  /** It honours idempotency keys with a body check for R. */
  keys: boolean;
  /** A processed request may be invisible for V. */
  eventual: boolean;
  /** Effects are pending first and may fail later. */
  asyncFailure: boolean;
  /** A final effect may be undone later. */
  reversal: boolean;
  /** It may perform something else than asked. */
  partial: boolean;
  /** It may reject clearly. */
  rejects: boolean;
  /** It may answer that the same request may be sent again, and may have queued it all the same. */
  retrySafe: boolean;
  /** A look-up may fail. */
  unreachable: boolean;
  /** Somebody else may create an effect like ours without our reference. */
  lookalike: boolean;
  /** Ticks within which a request is really processed or dropped; the protocol assumes P. `null`: no bound (A2 broken). */
  networkMax: number | null;
  /** Ticks that the pause before the write really lasts at most; the protocol assumes Z. `null`: no bound (A1 broken). */
  pauseMax: number | null;

  // The people.
  /** Approval is still to be decided. */
  decides: boolean;
  cancels: boolean;
  /** A changed proposal supersedes once. */
  amends: boolean;
  /** The stored action changes without a commit. */
  alters: boolean;
  /** Somebody gives verdicts, and has a failed run done again by a successor. */
  verdicts: boolean;
  /** A second person always waives a missing fence. */
  waiver: boolean;
  /** An operator sets and releases a hold. */
  holds: boolean;

  // The installation.
  /** Interchangeable workers; each may take any role. With two runs: of each run. */
  workers: number;
  /** Runs on the one external resource. */
  runs: 1 | 2;
  /** The run starts as queued, not as awaiting approval. */
  fromQueued: boolean;
  /** Retries that follow `not_sent` (rule 8). */
  notSentRetries: 0 | 1;
  /** The worker's connection may break between the commit and the write. */
  connectionBreaks: boolean;
  /** A living executor may lose its session lease. */
  leaseBreaks: boolean;
  /** Kills, −1 for any number. */
  crashes: number;
  /** Hints are modelled and may be lost this often; `null`: everybody always looks. */
  hintLosses: number | null;
  /** Failovers that lose the dispatch commit (A5 broken). */
  lostCommits: number;
  /** Ticks that an approval lives. */
  approvalLife: number;
}

const PLAIN: Environment = {
  keys: false,
  eventual: false,
  asyncFailure: false,
  reversal: false,
  partial: false,
  rejects: true,
  retrySafe: false,
  unreachable: false,
  lookalike: false,
  networkMax: TICKS.provider,
  pauseMax: TICKS.pause,
  decides: false,
  cancels: false,
  amends: false,
  alters: false,
  verdicts: true,
  waiver: true,
  holds: false,
  workers: 2,
  runs: 1,
  fromQueued: false,
  notSentRetries: 0,
  connectionBreaks: false,
  leaseBreaks: false,
  crashes: -1,
  hintLosses: null,
  lostCommits: 0,
  approvalLife: 5,
};

/** Without a key nothing is sent again after an absence: the approval matters up to the dispatch only, and may be short. */
const NO_KEY = { approvalLife: 3 } as const;

/** Where the protocol must keep I1 to I11. */
export const SAFETY: Readonly<Record<string, Environment>> = {
  'i-idempotency-key': { ...PLAIN, keys: true, eventual: true },
  'i-key-long-approval': { ...PLAIN, keys: true, approvalLife: 9 },
  'i-key-slower-than-declared': { ...PLAIN, keys: true, networkMax: 3, verdicts: false, approvalLife: 9 },
  'i-key-not-sent': { ...PLAIN, keys: true, notSentRetries: 1, verdicts: false },
  'i-key-retry-safe': { ...PLAIN, keys: true, retrySafe: true, verdicts: false },
  'ii-strong-lookup': { ...PLAIN, notSentRetries: 1, connectionBreaks: true, unreachable: true, leaseBreaks: true },
  'ii-pause-unbounded': { ...PLAIN, pauseMax: null, verdicts: false },
  'ii-pause-unbounded-fenced': { ...PLAIN, pauseMax: null, waiver: false, rejects: false },
  'ii-network-unbounded': { ...PLAIN, networkMax: null, verdicts: false },
  'iii-eventual-lookup': { ...PLAIN, eventual: true, leaseBreaks: true, ...NO_KEY },
  'iii-retry-safe-without-key': { ...PLAIN, retrySafe: true, verdicts: false },
  'iv-accept-then-fail': { ...PLAIN, keys: true, asyncFailure: true, rejects: false },
  'iv-accept-then-fail-no-key': { ...PLAIN, asyncFailure: true, eventual: true, ...NO_KEY },
  'iv-reversal': { ...PLAIN, reversal: true, ...NO_KEY },
  'v-partial': { ...PLAIN, partial: true, lookalike: true, ...NO_KEY },
  'vi-control-plane': { ...PLAIN, keys: true, decides: true, amends: true, alters: true, cancels: true },
  'vii-two-runs': { ...PLAIN, runs: 2, workers: 1, verdicts: false, rejects: false },
  'vii-two-runs-hold': { ...PLAIN, runs: 2, workers: 1, verdicts: false, rejects: false, holds: true },
};

const QUEUED: Environment = { ...PLAIN, verdicts: false, crashes: 1, hintLosses: 1 };

/** Where every run must end in a stop or be parked. */
export const LIVENESS: Readonly<Record<string, Environment>> = {
  'live-prefix': { ...QUEUED, fromQueued: true, decides: true, amends: true, rejects: false, approvalLife: 3 },
  'live-key': { ...QUEUED, keys: true },
  'live-not-sent': { ...QUEUED, notSentRetries: 1, connectionBreaks: true, rejects: false, approvalLife: 3 },
  'live-one-worker': { ...QUEUED, workers: 1, keys: true, asyncFailure: true },
  'live-eventual': { ...QUEUED, eventual: true, ...NO_KEY },
  'live-async': { ...QUEUED, asyncFailure: true, rejects: false, ...NO_KEY },
  'live-partial': { ...QUEUED, partial: true, unreachable: true, rejects: false, ...NO_KEY },
  'live-two-runs-hold': {
    ...QUEUED,
    runs: 2,
    workers: 1,
    rejects: false,
    holds: true,
    hintLosses: null,
    approvalLife: 3,
  },
};

/** Where an effect behind a closed run must come to light: A1 is broken, or the target turns. */
export const SURFACING: Readonly<Record<string, Environment>> = {
  'surface-late-send': { ...PLAIN, pauseMax: null, crashes: 1 },
  'surface-reversal': { ...PLAIN, reversal: true, verdicts: false, crashes: 0 },
};

/** The protocol in a world worse than it assumes: what it then cannot promise. */
export const BROKEN_ASSUMPTIONS: Readonly<Record<string, Environment>> = {
  'without-A1': { ...PLAIN, pauseMax: null },
  'without-A2': { ...PLAIN, networkMax: null },
  'without-A5': { ...PLAIN, lostCommits: 1, verdicts: false, decides: true, cancels: true },
};

/** A world small enough for the tests of every day. */
export const SMALL: Environment = { ...PLAIN, keys: true, verdicts: false };
