import { STORE_RULES, type StoreRule } from './memory-store.ts';

/** Rules that stand in the workers: the simulation takes one away by what it puts behind a port. */
export const PORT_RULES = [
  'commit-before-send',
  'only-winner-sends',
  'foreign-attempt-never-sends',
  'attempt-in-same-transaction',
  'frozen-bytes',
  'no-transport-retry',
  't0-before-begin',
  'deadline-check-before-send',
  'timeout-is-uncertain',
  'not-sent-means-no-byte',
  'conflict-is-uncertain',
  'clear-rejection-of-the-first-alone',
  'retry-only-idempotent',
  'same-key-on-retry',
  'settle',
  'observed-at-before-read',
  'retention-margin',
  'final-status-only',
  'full-compare',
  'match-by-reference',
  'sweeper',
  'bounded-verify',
  'bounded-looks',
] as const;
export type PortRule = (typeof PORT_RULES)[number];

/** Every rule that `new Simulation({ without })` can take away; nothing else can, and no environment or column reaches it. */
export type Rule = PortRule | StoreRule;
export const RULES: readonly Rule[] = [...PORT_RULES, ...STORE_RULES];

export function isStoreRule(rule: Rule): rule is StoreRule {
  return (STORE_RULES as readonly string[]).includes(rule);
}
