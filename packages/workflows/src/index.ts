export {
  type ApprovalMethod,
  type ApprovalPolicy,
  type ApprovalTerms,
  approvalPolicy,
  type PolicyTier,
} from './approval-policy.ts';
export { creditWorkflow } from './credit/credit.ts';
export { CreditInput, CreditProposal } from './credit/input.ts';
export {
  type Call,
  defineWorkflow,
  type Fact,
  type Gathered,
  type OperationKind,
  type ProposalVerdict,
  type Verdict,
  type Workflow,
  type WorkflowDoor,
} from './define-workflow.ts';
export { callFor, refuseOperation } from './dispatcher.ts';
export { lookResult, observeEffect } from './observe-effect.ts';
export { RefundInput, RefundProposal } from './refund/input.ts';
export { refundWorkflow } from './refund/refund.ts';
export { createSystems, type Systems, type SystemsOptions, WORKFLOW_DOORS, workflowOf } from './systems.ts';
export { checkedAgainstContracts, contractFaults, openSystems, systemsEnvironment } from './systems-environment.ts';
