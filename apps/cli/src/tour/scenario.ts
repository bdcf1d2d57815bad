import type { State, StopReasonCode } from '@counterstamp/manifest-core';
import type { CaseSeedInput, FaultInput } from '@counterstamp/sandbox';
import type { Tools } from './tools.ts';

/** What every refund of the tour asks for, in minor units of USD, unless its scenario says otherwise. */
export const AMOUNT_MINOR = 4_200;

/** Facts of the shop and the provider that differ from a coherent, open case. */
export type World = Partial<
  Pick<
    CaseSeedInput,
    | 'amount_minor'
    | 'requested_amount_minor'
    | 'request_status'
    | 'order_tenant_id'
    | 'payment_captured_amount_minor'
    | 'disputed'
  >
> & { fault?: FaultInput };

/** What a request says beside its amount; the tour's names are filled in. */
export interface Asked {
  amount_minor?: number;
  proposer?: 'rules' | 'external';
  run_life_ms?: number;
  approval_life_ms?: number;
  allowed_operations?: readonly string[];
}

/** A key of the tour, by tenant and person: `shop_north/approver`. */
export type Holder = `${string}/${string}`;

/**
 * What somebody does once the run is ready for it. `refused` is the answer that is expected instead of success; the run must then be as before.
 * `decide` waits for an action that was not decided on by an earlier step; `shown: 'before'` decides on what the run showed last, whatever it shows now.
 */
export type Step =
  | {
      kind: 'decide';
      by: Holder;
      decision: 'approve' | 'reject';
      digest?: 'another';
      shown?: 'before';
      /** Decides only once the run is in this state: a late click. */
      once?: State;
      refused?: Refused;
    }
  | { kind: 'read'; by: Holder; refused: Refused }
  | { kind: 'propose'; amount_minor: number; refused?: Refused }
  | { kind: 'cancel'; by: Holder; refused?: Refused }
  /** Somebody refunds at the provider by hand. */
  | { kind: 'by_hand'; amount_minor: number };

/** `409 digest_mismatch`, `400 amount_not_positive at /input/requested_amount_minor`. */
export type Refused = `${number} ${string}`;

/** What is compared: the same shape is expected and seen. */
export interface Result {
  state: State;
  /** Code of the stop reason. */
  stop?: StopReasonCode;
  /** Parked for a person. */
  parked?: true;
  /** States that the run passed through, in this order; others may lie between. */
  through?: readonly State[];
  /** What the stop reason's message must contain. */
  says?: string;
  /** Answers to the steps that had to be refused. */
  refused?: readonly Refused[];
  /** Amounts of the refunds in the provider's books, in minor units. */
  refunds: readonly number[];
  /** Refund requests that reached the provider. */
  requests: number;
}

/** A run that travels through the fleet. */
export interface RunScenario {
  kind: 'run';
  name: string;
  world?: World;
  asked?: Asked;
  /** What people do, in order; nothing when absent. */
  steps?: readonly Step[];
  expected: Result;
}

/** Requests that the door turns away, so that no run exists. */
export interface DoorScenario {
  kind: 'door';
  name: string;
  tries: readonly {
    what: string;
    /** JSON text of the members of the input beside order_id, as it leaves; absent members are missing. */
    members: string;
    refused: Refused;
  }[];
}

/** Several runs that have to do with each other. `tell` plays them and says what it saw. */
export interface StoryScenario {
  kind: 'story';
  name: string;
  expected: string;
  tell(tools: Tools): Promise<string>;
}

export type Scenario = RunScenario | DoorScenario | StoryScenario;

/** A heading and what stands under it. */
export interface ScenarioGroup {
  title: string;
  scenarios: readonly Scenario[];
}

/** The plain approval of most scenarios. */
export const APPROVED: readonly Step[] = [{ kind: 'decide', by: 'shop_north/approver', decision: 'approve' }];
