import { formatMoney, type State } from '@counterstamp/manifest-core';
import type { Result } from './scenario.ts';

/** What was seen of a run: everything that could be expected of it. */
export interface Seen {
  state: State;
  stop?: string | undefined;
  parked: boolean;
  /** States in the order of the events. */
  trail: readonly State[];
  message: string;
  refused: readonly string[];
  refunds: readonly number[];
  requests: number;
  /** Whether every request that reached the provider carried exactly the bytes that were approved. */
  approvedBytes: boolean;
}

/** In which members `seen` is not as expected, as words; empty when it is. Pure. */
export function differences(expected: Result, seen: Seen): string[] {
  const found: string[] = [];
  const check = (holds: boolean, words: string) => {
    if (!holds) found.push(words);
  };
  check(seen.state === expected.state, `state is ${seen.state}, not ${expected.state}`);
  check(seen.stop === expected.stop, `stop reason is ${seen.stop ?? 'none'}, not ${expected.stop ?? 'none'}`);
  check(seen.parked === (expected.parked ?? false), seen.parked ? 'it is parked' : 'it is not parked');
  const { through = [] } = expected;
  check(isSubsequence(through, seen.trail), `it went ${seen.trail.join(' → ')}, not through ${through.join(' → ')}`);
  check(
    expected.says === undefined || seen.message.includes(expected.says),
    `the message is "${seen.message}", without "${expected.says}"`,
  );
  const { refused = [] } = expected;
  check(sameList(refused, seen.refused), `the answers are ${listed(seen.refused)}, not ${listed(refused)}`);
  check(
    sameList(expected.refunds, seen.refunds),
    `in the books: ${refundsText(seen.refunds)}, not ${refundsText(expected.refunds)}`,
  );
  check(seen.requests === expected.requests, `${seen.requests} requests arrived, not ${expected.requests}`);
  check(seen.approvedBytes, 'a request carried other bytes than were approved');
  return found;
}

/** One line about what is expected: `completed, one refund of USD 42.00`. */
export function expectedText(expected: Result): string {
  return [
    ...(expected.refused ?? []),
    stateText(expected.state, expected.stop, expected.parked ?? false, [...new Set(expected.through ?? [])]),
    ...(expected.says === undefined ? [] : [`"${expected.says}"`]),
    refundsText(expected.refunds),
    requestsText(expected.requests),
  ].join(', ');
}

/** One line about what was seen, in the same words. */
export function seenText(expected: Result, seen: Seen): string {
  const through = isSubsequence(expected.through ?? [], seen.trail) ? (expected.through ?? []) : seen.trail;
  return [
    ...seen.refused,
    stateText(seen.state, seen.stop, seen.parked, [...new Set(through)]),
    ...(expected.says !== undefined && seen.message.includes(expected.says) ? [`"${expected.says}"`] : []),
    refundsText(seen.refunds),
    `${requestsText(seen.requests)}${seen.requests > 0 && seen.approvedBytes ? ' with the approved bytes' : ''}`,
  ].join(', ');
}

function stateText(state: State, stop: string | undefined, parked: boolean, through: readonly State[]): string {
  const why = stop === undefined ? '' : ` (${parked ? 'parked: ' : ''}${stop})`;
  const before =
    through.includes('needs_reconciliation') && state !== 'needs_reconciliation' ? 'needs_reconciliation → ' : '';
  return `${before}${state}${why}`;
}

function refundsText(refunds: readonly number[]): string {
  const [first] = refunds;
  if (first === undefined) return 'no refund';
  if (refunds.length === 1) return `one refund of ${formatMoney(first, 'USD')}`;
  return `${refunds.length} refunds (${refunds.map((amount) => formatMoney(amount, 'USD')).join(', ')})`;
}

function requestsText(requests: number): string {
  return requests === 0 ? 'nothing sent' : requests === 1 ? 'one request' : `${requests} requests`;
}

function listed(words: readonly string[]): string {
  return words.length === 0 ? 'none' : words.join('; ');
}

function sameList<T>(a: readonly T[], b: readonly T[]): boolean {
  return a.length === b.length && a.every((item, index) => item === b[index]);
}

/** Whether `wanted` occurs in `all` in this order; others may lie between. */
function isSubsequence<T>(wanted: readonly T[], all: readonly T[]): boolean {
  let next = 0;
  for (const item of all) if (item === wanted[next]) next += 1;
  return next === wanted.length;
}
