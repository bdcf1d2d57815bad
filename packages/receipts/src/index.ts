export {
  CHECKPOINT_PAYLOAD_TYPE,
  Checkpoint,
  type CheckpointChainFault,
  type CheckpointFault,
  CheckpointLeaf,
  CheckpointProof,
  makeCheckpoint,
  proofFor,
  type VerifiedCheckpoint,
  verifyCheckpoint,
  verifyCheckpointChain,
} from './checkpoint.ts';
export type { Finding } from './finding.ts';
export { inclusionPath, merkleRoot, rootFromPath } from './merkle.ts';
export { RECEIPT_PAYLOAD_TYPE, RECEIPT_PREDICATE_TYPE, ReceiptPredicate } from './predicate.ts';
export {
  makeReceipt,
  RECEIPT_CHECKS,
  type ReceiptCheck,
  type ReceiptVerification,
  verifyReceipt,
} from './receipt.ts';
