import { currencyExponent } from '@counterstamp/manifest-core';
import type { ConnectorContract, CurrencyTable } from '../port.ts';

const CURRENCIES = ['USD', 'EUR', 'GBP', 'CHF', 'JPY', 'KWD'];

/** The credits count in ISO minor units and ask for no rounder ones. */
const amounts: CurrencyTable = Object.fromEntries(
  CURRENCIES.map((currency) => [currency, { exponent: currencyExponent(currency), granularity: 1 }]),
);

/**
 * What the legacy credit system promises: little. Every request that it accepts is another credit, and its look-up is a replica that lags.
 * So an uncertain send ends as found exact or with a person. Source: apps/sandbox/README.md, "Credits".
 */
export const LEGACY_CREDITS_CONTRACT: ConnectorContract = {
  name: 'legacy-credits',
  version: '1',
  idempotency: { kind: 'none' },
  lookup: { consistency: { kind: 'eventual', settleMs: 1_000 }, correlation: 'tag', complete: true },
  settlement: 'sync',
  reversalHorizonMs: 0,
  inFlightHorizonMs: 1_000,
  amounts,
};
