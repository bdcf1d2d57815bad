import type { Clock, Durations, Failpoint, Ids, Limits, Queue } from '@counterstamp/manifest-core';
import type { ApiStore, IdentityStore } from '@counterstamp/manifest-store';
import type { Oidc } from './oidc.ts';
import type { RateLimits } from './rate-limits.ts';
import type { SignIn } from './sign-in.ts';
import type { WorkflowDoor } from './workflow-door.ts';

/** The part of a logger that the api uses; pino's has it. */
export interface ApiLog {
  info(fields: Record<string, unknown>, message: string): void;
  warn(fields: Record<string, unknown>, message: string): void;
  error(fields: Record<string, unknown>, message: string): void;
}

/** One answered request, for metrics. Every label comes from a closed set, whatever a caller sends. */
export interface ObservedRequest {
  /** Path template of a route, or `unmatched`. */
  route: string;
  /** A method that some route takes, or `other`. */
  method: string;
  status: number;
  duration_ms: number;
}

export interface ApiDeps {
  store: ApiStore;
  identities: IdentityStore;
  /** Absent in development only: then nobody can sign in, and no receipt is signed. */
  signIn?: SignIn | undefined;
  /** Absent where no identity provider is set up. */
  oidc?: Oidc;
  queue: Queue;
  ids: Ids;
  /** Bounds the readiness check and measures requests; decides nothing. */
  clock: Pick<Clock, 'after' | 'monotonicMs'>;
  failpoint: Failpoint;
  /** By name. */
  workflows: ReadonlyMap<string, WorkflowDoor>;
  durations: Durations;
  limits: Limits;
  rates: RateLimits;
  /** Whose operators may switch holds and judge instances, which are the installation's; `undefined`: every tenant's. */
  operating_tenant?: string | undefined;
  /** COUNTERSTAMP_DEV: whether a key may decide. */
  development: boolean;
  log: ApiLog;
  /** One round trip to the queue's backend, at most 1 s, never rejecting; for `/readyz` only. */
  pingQueue?: () => Promise<{ kind: 'ok' | 'unavailable' }>;
  observe?: (request: ObservedRequest) => void;
  /** Counts a request that was refused because its sender asks too often. */
  rateLimited?: (limiter: string) => void;
  /** Counts what somebody must look at; its audit event is written already. */
  alarm?: (code: 'break_glass') => void;
}
