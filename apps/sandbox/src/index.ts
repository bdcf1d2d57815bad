export type { CaseSeedInput } from './admin/seed-case.ts';
export type { Clock, EpochMs } from './clock.ts';
export type { CreateFault, Fault, FaultInput, ReadFault } from './faults/catalogue.ts';
export type { Problem } from './http/answer.ts';
export { READ_ONLY_KEY, WRITE_KEY } from './provider/authority.ts';
export type { LedgerEntry, LedgerOutcome } from './provider/ledger.ts';
export type { EffectView, PaymentView, RefundView } from './provider/payment.ts';
export { type CloseOptions, type RunningSandbox, type SandboxOptions, startSandbox } from './sandbox.ts';
export type { OrderView, ShopRequestView } from './shop/shop.ts';
