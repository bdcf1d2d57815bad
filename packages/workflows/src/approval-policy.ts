import { ExternalId, type MinorUnits } from '@counterstamp/manifest-core';

/** How a person proves a decision: by the session they are signed in with, or by a passkey that signs this one decision. */
export type ApprovalMethod = 'session' | 'passkey';

/** Whom the policy asks, by which of its rules, and how they answer. Bound by the approval request, member by member. */
export interface ApprovalTerms {
  policy: string;
  policy_version: number;
  policy_rule: string;
  /** Distinct people; at least one: a policy can never ask nobody. */
  approvals_required: number;
  /** How many of those people must belong to a group, by the group's name. A person counts in every group that they belong to. */
  groups_required: Record<string, number>;
  method: ApprovalMethod;
  /** Whether the break-glass path, two passkeys and a reason, may stand in for these people. */
  break_glass: boolean;
}

/** One rule of a policy: what it asks for amounts above its thresholds. */
export interface PolicyTier {
  rule: string;
  /** Minor units by currency; the tier applies to amounts above. `null` on the first tier: it applies to every amount. */
  above: Readonly<Record<string, number>> | null;
  approvals: number;
  groups: Readonly<Record<string, number>>;
  method: ApprovalMethod;
  break_glass: boolean;
}

export interface ApprovalPolicy {
  name: string;
  version: number;
  /**
   * What the policy asks for an amount in minor units. The highest tier that the amount is above replaces the lower ones. A currency that the
   * tiers do not name gets the highest tier: nobody has said yet how much of it is little.
   */
  termsFor(amount_minor: MinorUnits, currency: string): ApprovalTerms;
}

/**
 * An approval policy from its tiers, lowest first. Any change of a tier is a new version: approvals that were asked for under the old one are
 * asked for anew.
 * @throws {RangeError} when the definition contradicts itself, so that a process with such a policy does not start.
 */
export function approvalPolicy(definition: {
  name: string;
  version: number;
  tiers: readonly PolicyTier[];
}): ApprovalPolicy {
  const { name, version, tiers } = definition;
  const fault = policyFault(version, tiers);
  if (fault !== undefined) throw new RangeError(`approval policy ${name}: ${fault}`);
  const rows = tiers.map((tier) => ({
    above: tier.above === null ? null : new Map(Object.entries(tier.above)),
    terms: {
      policy: name,
      policy_version: version,
      policy_rule: tier.rule,
      approvals_required: tier.approvals,
      groups_required: Object.fromEntries(Object.entries(tier.groups).sort(([a], [b]) => (a < b ? -1 : 1))),
      method: tier.method,
      break_glass: tier.break_glass,
    } satisfies ApprovalTerms,
  }));
  return {
    name,
    version,
    termsFor(amount_minor, currency) {
      const row = rows.findLast(({ above }) => above === null || amount_minor > (above.get(currency) ?? -1));
      if (row === undefined) throw new Error(`approval policy ${name} has no tier for every amount`);
      return structuredClone(row.terms);
    },
  };
}

/** What is wrong with a definition, as the rest of a sentence; `undefined`: nothing. */
function policyFault(version: number, tiers: readonly PolicyTier[]): string | undefined {
  if (!isCount(version)) return 'its version is not a positive integer';
  const [first, ...higher] = tiers;
  if (first === undefined) return 'it has no tier';
  if (first.above !== null) return 'its first tier must apply to every amount';
  if (new Set(tiers.map((tier) => tier.rule)).size < tiers.length) return 'two tiers have one rule name';
  for (const tier of tiers) {
    const fault = tierFault(tier);
    if (fault !== undefined) return `${tier.rule} ${fault}`;
  }
  let below: Readonly<Record<string, number>> | undefined;
  for (const { rule, above } of higher) {
    if (above === null) return `${rule} applies to every amount, so that no lower tier ever would`;
    const fault = thresholdFault(above, below);
    if (fault !== undefined) return `${rule} ${fault}`;
    below = above;
  }
  return undefined;
}

function tierFault({ approvals, groups }: PolicyTier): string | undefined {
  if (!isCount(approvals)) return 'must ask at least one person';
  for (const [group, count] of Object.entries(groups)) {
    if (!ExternalId.safeParse(group).success) return `names a group ${JSON.stringify(group)}, which is no identifier`;
    if (!isCount(count)) return `must ask at least one person of ${group}, or not name it`;
    if (count > approvals) return `asks ${count} people of ${group}, but only ${approvals} in all`;
  }
  return undefined;
}

function thresholdFault(
  above: Readonly<Record<string, number>>,
  below: Readonly<Record<string, number>> | undefined,
): string | undefined {
  const currencies = Object.keys(above).sort();
  if (currencies.length === 0) return 'names no currency';
  if (below !== undefined && currencies.join() !== Object.keys(below).sort().join())
    return 'names other currencies than the tier below it';
  for (const currency of currencies) {
    const threshold = above[currency] ?? Number.NaN;
    if (!/^[A-Z]{3}$/.test(currency)) return `names a currency ${JSON.stringify(currency)}`;
    if (!Number.isSafeInteger(threshold) || threshold < 0) return `has no whole threshold for ${currency}`;
    if (threshold <= (below?.[currency] ?? -1)) return `does not begin above the tier below it for ${currency}`;
  }
  return undefined;
}

function isCount(value: number): boolean {
  return Number.isSafeInteger(value) && value > 0;
}
