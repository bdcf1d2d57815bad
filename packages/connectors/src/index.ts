export { LEGACY_CREDITS_CONTRACT } from './legacy-credits/contract.ts';
export { CREDIT_REASONS, CreditAction, displayCredit, MemoText } from './legacy-credits/credit-action.ts';
export {
  classifyGrantReply,
  createLegacyCredits,
  type LegacyCreditsOptions,
  matchGrants,
} from './legacy-credits/legacy-credits.ts';
export type {
  Connector,
  ConnectorContract,
  CurrencyTable,
  Effect,
  FieldDiff,
  IdempotencyContract,
  LookupContract,
  Observation,
  ObserveBinding,
  Outcome,
  Prepared,
  Read,
  ReadOutcome,
  Settlement,
  SourceRecord,
} from './port.ts';
export { checkMoney, keyRetentionMs } from './port.ts';
export { SANDBOX_PAYMENTS_CONTRACT } from './sandbox-payments/contract.ts';
export { displayRefund, REFUND_REASONS, RefundAction } from './sandbox-payments/refund-action.ts';
export {
  classifyRefundReply,
  createSandboxPayments,
  matchEffects,
  PaymentFacts,
  type SandboxPaymentsOptions,
} from './sandbox-payments/sandbox-payments.ts';
export { CustomerOrderFacts, createShop, OrderFacts, RequestFacts, type Shop } from './shop/shop.ts';
