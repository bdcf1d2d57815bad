/**
 * Every duration of the protocol in milliseconds, named as protocol.md section 1 names them. Configuration, validated together.
 */
export interface Durations {
  /** D: from dispatch commit to the end of the call. */
  call_deadline_ms: number;
  /** ε: rounding and clock-reading error that every deadline check keeps clear of. */
  epsilon_ms: number;
  /** Z: longest pause between the deadline check and `write()` that assumption A1 grants. */
  pause_ms: number;
  /** G: how long past the call deadline the sweeper leaves an attempt to its own worker. */
  sweep_grace_ms: number;
  /** How long an executor may be without its session lease before its attempts are looked up early. */
  lease_loss_ms: number;
  /** P: the provider processes or drops a request within this time of `write()` (A2). */
  provider_ms: number;
  /** How long a stage may work on a run before the sweeper hints it again. */
  stage_lease_ms: number;
  sweep_interval_ms: number;
  /** A hint that nobody took is repeated after a time that doubles between these two. */
  rehint_min_ms: number;
  rehint_max_ms: number;
  approval_life_ms: number;
  run_life_ms: number;
  read_timeout_ms: number;
  connect_timeout_ms: number;
  /** Waits for an effect to appear or settle double from min to max. */
  look_min_ms: number;
  look_max_ms: number;
  /** A run that waits for something held by another backs off between these two. */
  defer_min_ms: number;
  defer_max_ms: number;
  /** How long a proposal from outside may take. */
  proposal_wait_ms: number;
  /** Between a closed run's first looks for an effect that turned up late. */
  closure_audit_ms: number;
  /** Between two signed checkpoints of what moved. */
  checkpoint_ms: number;
  /** How long current work may take to end after SIGTERM. */
  drain_grace_ms: number;
  /** How long a worker may take no hints although its queue answers before it ends itself. */
  stuck_ms: number;
}

/** Limits of the automatic loops; at the limit the run stops or is parked with a reason (protocol rule 24). */
export interface Limits {
  read_failures_max: number;
  proposal_cycles_max: number;
  verification_waits_max: number;
  look_ups_max: number;
  not_sent_retries_max: number;
  /** Runs of one tenant that have not ended. */
  open_runs_max: number;
}

/** What each duration is for; docs/reference/configuration.md is rendered from here. Letters are those of the protocol. */
export const DURATION_MEANINGS: Readonly<Record<keyof Durations, string>> = {
  call_deadline_ms: 'D: from the dispatch commit to the end of the call, and never beyond the approval’s expiry',
  epsilon_ms: 'ε: what rounding and reading a clock may cost; every deadline check keeps clear of it',
  pause_ms: 'Z: longest pause of a process between its deadline check and its write; only settled absence rests on it',
  sweep_grace_ms: 'G: how long past the call deadline the sweeper leaves an attempt to its own worker',
  lease_loss_ms:
    'how long an executor may be without its session lease (its process gone, stopped or cut off) before its attempts are looked up early',
  provider_ms: 'P: within this time of the write the provider has processed a request or dropped it',
  stage_lease_ms: 'how long a stage may work on a run before the sweeper hints it again',
  sweep_interval_ms: 'between two looks of a sweeper for due runs',
  rehint_min_ms: 'first pause before a hint that nobody took is repeated; it doubles',
  rehint_max_ms: 'longest pause between two repetitions of a hint',
  approval_life_ms: 'how long an approver has; a request may shorten it for its run, never lengthen it',
  run_life_ms: 'deadline of a whole run, from its creation',
  read_timeout_ms: 'for one read of an external system, from connecting to the last byte',
  connect_timeout_ms: 'for the connection of an effect, which is open before its commit',
  look_min_ms: 'first wait before an effect, or a failed read, is looked at again; it doubles',
  look_max_ms: 'longest wait between two looks',
  defer_min_ms: 'first wait of a run for what it cannot hurry: a hold, a busy resource, no connection; it doubles',
  defer_max_ms: 'longest such wait',
  proposal_wait_ms: 'how long a proposal from outside may take in one cycle',
  closure_audit_ms:
    'second look at a run that failed after a send, or completed where the target may still turn; it doubles from there',
  checkpoint_ms: 'time between two signed checkpoints of the chain heads that moved; while none does, 60 times that',
  drain_grace_ms: 'how long current work may take to end after SIGTERM',
  stuck_ms:
    'how long a worker may take no hints although the queue answers, before it ends with exit code 75 for its supervisor to start it anew',
};

/** What happens at each limit; docs/reference/configuration.md is rendered from here. */
export const LIMIT_MEANINGS: Readonly<Record<keyof Limits, string>> = {
  read_failures_max: 'reads of preflight and collecting that fail; at the limit the run is failed (attempt_limit)',
  proposal_cycles_max:
    'proposals asked for, a refused, superseded or outdated one included; a workflow may set its own',
  verification_waits_max: 'looks of the verifier for an accepted effect; at the limit it becomes uncertain',
  look_ups_max: 'looks of the reconciler without a result; at the limit the run is parked for a person',
  not_sent_retries_max: 'retries after attempts of which no byte left; at the limit the run is failed (not_sent)',
  open_runs_max: 'runs of one tenant that have not ended; at the limit a new request is refused (open_runs_limit)',
};

export const LIMITS: Limits = {
  read_failures_max: 3,
  proposal_cycles_max: 3,
  verification_waits_max: 12,
  look_ups_max: 12,
  not_sent_retries_max: 5,
  open_runs_max: 10_000,
};

/** Start values of protocol.md section 1 and architecture.md section 9. */
const PRODUCTION: Durations = {
  call_deadline_ms: 20_000,
  epsilon_ms: 2_000,
  pause_ms: 10_000,
  sweep_grace_ms: 15_000,
  lease_loss_ms: 1_000,
  provider_ms: 60_000,
  stage_lease_ms: 15_000,
  sweep_interval_ms: 1_000,
  rehint_min_ms: 15_000,
  rehint_max_ms: 60_000,
  approval_life_ms: 15 * 60_000,
  run_life_ms: 24 * 3_600_000,
  read_timeout_ms: 5_000,
  connect_timeout_ms: 5_000,
  look_min_ms: 2_000,
  look_max_ms: 120_000,
  defer_min_ms: 2_000,
  defer_max_ms: 30_000,
  proposal_wait_ms: 3_600_000,
  closure_audit_ms: 3_600_000,
  checkpoint_ms: 60_000,
  drain_grace_ms: 25_000,
  stuck_ms: 60_000,
};

/** Serves tour and tests, where settling must not take minutes. */
const FAST: Durations = {
  ...PRODUCTION,
  call_deadline_ms: 2_000,
  epsilon_ms: 200,
  pause_ms: 500,
  sweep_grace_ms: 500,
  provider_ms: 1_000,
  stage_lease_ms: 3_000,
  rehint_min_ms: 3_000,
  rehint_max_ms: 12_000,
  approval_life_ms: 60_000,
  run_life_ms: 10 * 60_000,
  read_timeout_ms: 1_000,
  connect_timeout_ms: 1_000,
  look_min_ms: 250,
  look_max_ms: 4_000,
  defer_min_ms: 250,
  defer_max_ms: 2_000,
  proposal_wait_ms: 60_000,
  closure_audit_ms: 5_000,
  checkpoint_ms: 2_000,
  drain_grace_ms: 5_000,
};

export const PROFILES = { production: PRODUCTION, fast: FAST } as const satisfies Record<string, Durations>;
export type Profile = keyof typeof PROFILES;

/** Expiry must be at least this far away at dispatch, beside ε (protocol rule 5c). */
export const EXPIRY_MARGIN_MS = 1_000;

/** Time after the call deadline before which an absent effect proves nothing: Z + P + V + ε (protocol.md section 1). */
export function settleMs(durations: Durations, visibilityMs: number): number {
  return durations.pause_ms + durations.provider_ms + visibilityMs + durations.epsilon_ms;
}

/** How long a retry begun now may still reach the target, by A1 and A2: D + Z + P + ε (protocol rule 19). */
export function retryReserveMs(durations: Durations): number {
  return durations.call_deadline_ms + durations.pause_ms + durations.provider_ms + durations.epsilon_ms;
}

/** Every inequality that does not hold, as a sentence that names both sides; empty when all do. */
export function durationFaults(durations: Durations, profile: Profile): string[] {
  const faults: string[] = [];
  const require = (holds: boolean, sentence: string) => {
    if (!holds) faults.push(sentence);
  };
  for (const [name, value] of Object.entries(durations)) {
    require(Number.isSafeInteger(value) &&
      value > 0, `${name} must be a whole number of milliseconds above zero, not ${value}`);
  }
  const d = durations;
  require(d.epsilon_ms <
    d.call_deadline_ms, `epsilon_ms (${d.epsilon_ms}) must be below call_deadline_ms (${d.call_deadline_ms})`);
  if (profile === 'production') {
    require(d.epsilon_ms + EXPIRY_MARGIN_MS <
      d.call_deadline_ms, `epsilon_ms + ${EXPIRY_MARGIN_MS} (${d.epsilon_ms + EXPIRY_MARGIN_MS}) must be below call_deadline_ms (${d.call_deadline_ms})`);
  }
  require(d.epsilon_ms + EXPIRY_MARGIN_MS <
    d.approval_life_ms, `epsilon_ms + ${EXPIRY_MARGIN_MS} must be below approval_life_ms (${d.approval_life_ms}), or no approval could ever be used`);
  require(d.approval_life_ms <=
    d.run_life_ms, `approval_life_ms (${d.approval_life_ms}) must not exceed run_life_ms (${d.run_life_ms})`);
  require(d.read_timeout_ms <
    d.stage_lease_ms, `read_timeout_ms (${d.read_timeout_ms}) must be below stage_lease_ms (${d.stage_lease_ms}), or a slow read is always done twice`);
  require(d.rehint_min_ms <=
    d.rehint_max_ms, `rehint_min_ms (${d.rehint_min_ms}) must not exceed rehint_max_ms (${d.rehint_max_ms})`);
  require(d.look_min_ms <=
    d.look_max_ms, `look_min_ms (${d.look_min_ms}) must not exceed look_max_ms (${d.look_max_ms})`);
  require(d.defer_min_ms <=
    d.defer_max_ms, `defer_min_ms (${d.defer_min_ms}) must not exceed defer_max_ms (${d.defer_max_ms})`);
  require(d.sweep_interval_ms >=
    1_000, `sweep_interval_ms (${d.sweep_interval_ms}) must be at least 1000: an idle fleet polls once a second at most`);
  return faults;
}

/** Doubles from `minMs` with every earlier try, up to `maxMs`. */
export function backoffMs(tries: number, minMs: number, maxMs: number): number {
  return Math.min(maxMs, minMs * 2 ** Math.min(Math.max(tries, 0), 30));
}
