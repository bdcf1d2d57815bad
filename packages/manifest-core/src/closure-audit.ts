/** What the looks at a closed run are timed by; instants in milliseconds since the epoch. */
export interface ClosureFacts {
  state: 'failed' | 'completed';
  closed_at: number;
  /** Call deadline of the last attempt that may have left, and start of the first; null when no byte ever left. */
  last_deadline: number | null;
  first_started: number | null;
  settle_ms: number;
  closure_audit_ms: number;
  /** How long the target remembers a key; null without one. */
  retention_ms: number | null;
  /** How long a final status may still turn; 0: never. */
  reversal_horizon_ms: number;
}

/**
 * Every instant at which a closed run is looked at again (protocol rule 25): a failed one at + settle, + 1 h (`closure_audit_ms`) and + R; a
 * completed one in doubling steps as long as its settlement can turn, and once when it no longer can. In ascending order; empty when nothing can change any more.
 */
export function closureAudits(facts: ClosureFacts): number[] {
  if (facts.state === 'failed') {
    const instants = [facts.closed_at + facts.closure_audit_ms];
    if (facts.last_deadline !== null) instants.push(facts.last_deadline + facts.settle_ms);
    if (facts.first_started !== null && facts.retention_ms !== null)
      instants.push(facts.first_started + facts.retention_ms);
    return instants.sort((a, b) => a - b);
  }
  const instants: number[] = [];
  for (let wait = facts.closure_audit_ms; wait < facts.reversal_horizon_ms; wait *= 2)
    instants.push(facts.closed_at + wait);
  // The last look is the one after which nothing turns any more.
  if (facts.reversal_horizon_ms > 0) instants.push(facts.closed_at + facts.reversal_horizon_ms);
  return instants;
}

/** The first of a closed run's looks that lies after `now`; null when the last one is over. */
export function nextClosureAudit(facts: ClosureFacts, now: number): number | null {
  return closureAudits(facts).find((instant) => instant > now) ?? null;
}
