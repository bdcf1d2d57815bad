import type { TestProject } from 'vitest/node';
import { startServiceBroker } from './service-broker.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Base URL of this run's broker; `services.ts` asks it for databases and Redis. */
    serviceBroker: string;
    /** Sets this run's database names apart from those of another run on the same server. */
    testRunId: string;
  }
}

/** Starts the broker, not the services: a run of pure tests starts none. Vitest calls the returned function at its end. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const broker = await startServiceBroker();
  project.provide('serviceBroker', broker.url);
  project.provide('testRunId', broker.runId);
  return broker.stop;
}
