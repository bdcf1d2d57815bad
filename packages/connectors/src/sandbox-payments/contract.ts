import { currencyExponent } from '@counterstamp/manifest-core';
import type { ConnectorContract, CurrencyTable } from '../port.ts';

const CURRENCIES = ['USD', 'EUR', 'GBP', 'CHF', 'SEK', 'PLN', 'HUF', 'CAD', 'AUD', 'JPY', 'KRW', 'KWD', 'BHD'];

/** The sandbox counts in ISO minor units and asks for no rounder ones. */
const amounts: CurrencyTable = Object.fromEntries(
  CURRENCIES.map((currency) => [currency, { exponent: currencyExponent(currency), granularity: 1 }]),
);

/** What the sandbox's payment provider promises. Source: apps/sandbox/README.md. */
export const SANDBOX_PAYMENTS_CONTRACT: ConnectorContract = {
  name: 'sandbox-payments',
  version: '1',
  idempotency: {
    kind: 'key',
    retentionMs: 24 * 3_600_000,
    safetyMarginMs: 3_600_000,
    scope: ['account'],
    replays: 'stored-response',
    storesServerErrors: true,
    compares: 'all-params',
    inFlight: 'conflict-error',
    keyMaxLength: 255,
  },
  lookup: { consistency: { kind: 'strong' }, correlation: 'tag', complete: true },
  settlement: 'async',
  reversalHorizonMs: 7 * 24 * 3_600_000,
  inFlightHorizonMs: 1_000,
  amounts,
};
