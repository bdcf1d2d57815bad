import type { FleetService } from './service-environment.ts';
import type { DemoKeys } from './state-folder.ts';

/** What `up` asks its preparing process to do. */
export interface PrepareRequest {
  owner_url: string;
  /** The cluster is our own: nobody else's roles can be in it. */
  embedded: boolean;
  role_prefix: string;
  secret: string;
  redis_url: string | undefined;
  queue_prefix: string | undefined;
  /** Logins that the environment names; the others are derived. */
  given_urls: Partial<Record<FleetService, string>>;
  keys: DemoKeys;
  /** Hold every dispatch, before any service runs. */
  hold: boolean;
}

export interface Prepared {
  kind: 'prepared';
  server_version: string;
  database: string;
  migrations: string[];
  service_urls: Record<FleetService, string>;
  queue_prefix: string;
  /** `Valkey 8.1` and the like; absent with the Postgres backend. */
  redis: string | undefined;
  keys: DemoKeys;
  keys_made: number;
  /** What is on hold, by now or from before: a hold outlives the fleet that set it. */
  holds: { scope: string; reason: string }[];
}

export type PrepareAnswer =
  | Prepared
  | { kind: 'failed'; sentence: string; next: string | undefined; exit: 0 | 1 | 2 | 78 };
