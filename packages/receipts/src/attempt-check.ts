import { idempotencyKey } from '@counterstamp/manifest-core';
import { boundApproval } from './approval-checks.ts';
import { absent, counted, type Finding, judge } from './finding.ts';
import { withMicroseconds } from './instant.ts';
import type { ReceiptPredicate } from './predicate.ts';
import { dispatches, members, recordedBy } from './recorded.ts';

const DISPATCHED = ['attempt_id', 'action_digest', 'request_digest', 'idempotency_key', 'call_deadline'] as const;

/**
 * Each dispatch of the history has its attempt, as it was dispatched and as it was closed; all name the approved action and the key derived
 * from it, and none started or could call after the approval had expired.
 */
export function attemptsMatch(predicate: ReceiptPredicate): Finding {
  const { run, action, attempts, events } = predicate;
  const sends = dispatches(predicate);
  if (attempts.length === 0 && sends.length === 0) return absent('Nothing was dispatched.');
  const faults: string[] = [];
  const bound = boundApproval(predicate);
  const expires = bound === undefined ? undefined : withMicroseconds(bound.expires_at);
  const key = action === null ? undefined : idempotencyKey(run.run_id, action.action_revision, action.digest);
  if (attempts.length !== sends.length)
    faults.push(
      `The history has ${counted(sends.length, 'dispatch')}, the receipt ${counted(attempts.length, 'attempt')}.`,
    );
  for (const [index, attempt] of attempts.entries()) {
    const whose = `Attempt ${attempt.n}`;
    const dispatch = sends[index];
    const compare = (name: keyof typeof attempt, recorded: unknown) => {
      if (attempt[name] !== recorded)
        faults.push(
          `${whose} has the ${name} ${JSON.stringify(attempt[name])}, recorded was ${JSON.stringify(recorded)}.`,
        );
    };
    compare('n', index + 1);
    const { refs } = recordedBy(dispatch);
    for (const name of DISPATCHED) compare(name, refs[name]);
    compare('started_at', dispatch?.at);
    const closing = events.find((event) => members(recordedBy(event).refs.attempt).attempt_id === attempt.attempt_id);
    const outcome = members(recordedBy(closing).refs.attempt);
    compare('status', outcome.status ?? 'started');
    compare('provider_ref', outcome.provider_ref ?? null);
    compare('closed_at', closing?.at ?? null);
    if (attempt.action_digest !== action?.digest) faults.push(`${whose} is not of the approved action.`);
    if (attempt.idempotency_key !== key) faults.push(`${whose} does not have the key that the approved action gives.`);
    if (expires === undefined || attempt.started_at >= expires || attempt.call_deadline > expires)
      faults.push(`${whose} could call when the approval had expired, or there was none.`);
  }
  return judge(
    faults,
    `${counted(attempts.length, 'attempt')}, each of the approved action under its own key: ${attempts.map(({ n, status }) => `${n} ${status}`).join(', ')}.`,
  );
}
