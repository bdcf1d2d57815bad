import { type Durations, epochMs, type LoadedRun } from '@counterstamp/manifest-core';
import type { DeferralCode } from '@counterstamp/telemetry';
import type { StageDecision } from './stage-loop.ts';

/** A wait on an unchanged revision, in doubling steps since the last commit, so that what is held or away is asked less and less often. */
export function deferral(
  run: LoadedRun,
  durations: Pick<Durations, 'defer_min_ms' | 'defer_max_ms'>,
  code: DeferralCode,
  reason: string,
): StageDecision {
  const waitedMs = Math.max(0, run.nowMs - epochMs(run.manifest.committed_at));
  return {
    kind: 'defer',
    wake_in_ms: Math.min(durations.defer_max_ms, Math.max(durations.defer_min_ms, waitedMs)),
    code,
    reason,
  };
}
