import { CHECKS, type CheckId, type FleetJudgement } from '@counterstamp/history-checker';

/** What was checked and what came of it, in a sentence or two. What was not checked is always said. */
export function summaryText({ runs, runs_before_ledger, ledger, violations }: Omit<FleetJudgement, 'report'>): string {
  const wrong = violations.filter(({ severity }) => severity === 'violation').length;
  const alarms = violations.length - wrong;
  const against =
    ledger === null
      ? ''
      : `, against ${ledger.requests.length} requests and ${ledger.effects.length} effects at the providers`;
  const result =
    wrong === 0
      ? `✓ ${count(runs, 'run')}${against}: no violation of ${ledger === null ? 'what the database alone can show' : 'H1 to H12'}.`
      : `✗ ${count(wrong, 'violation')} in ${count(runs, 'run')}${against}.`;
  return [
    result,
    ...(alarms === 0
      ? []
      : [`${count(alarms, 'alarm')}: a sender paused for longer than the protocol assumes; look at what followed.`]),
    ...(runs_before_ledger === 0
      ? []
      : [`${count(runs_before_ledger, 'run')} began before the providers' ledger did: judged by the database alone.`]),
    ...(ledger === null ? [notChecked()] : []),
  ].join('\n');
}

/** What wants the providers' ledger. */
function notChecked(): string {
  const needing = (how: 'whole' | 'part') =>
    (Object.keys(CHECKS) as CheckId[]).filter((check) => CHECKS[check].ledger === how).join(', ');
  return `Not checked, for want of the providers' ledger (--ledger URL): ${needing('whole')}, and the providers' part of ${needing('part')}.`;
}

function count(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? '' : 's'}`;
}
