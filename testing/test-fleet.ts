import { type Fleet, prepareFleetDatabase, startFleet } from './fleet.ts';
import { redisUrl, testDatabase } from './services.ts';
import { TEST_ROLE_PREFIX, TEST_SECRET } from './store-fixture.ts';

export const FLEET_BACKENDS = ['redis', 'postgres'] as const;
export type FleetBackend = (typeof FLEET_BACKENDS)[number];

/** A fleet on a database of its own, for one test file. `redis`: another Redis than the run's, when a test must own it. */
export async function testFleet(
  backend: FleetBackend,
  redis?: string,
  env: Record<string, string> = {},
): Promise<Fleet> {
  const access = { rolePrefix: TEST_ROLE_PREFIX, secret: TEST_SECRET };
  const database = await testDatabase({
    version: 18,
    name: 'fleet',
    prepare: (url) => prepareFleetDatabase(url, access),
  });
  const fleet = await startFleet({
    ownerUrl: database.url,
    ...access,
    env,
    ...(backend === 'redis' ? { redisUrl: redis ?? (await redisUrl()) } : {}),
  });
  return {
    ...fleet,
    async stop() {
      await fleet.stop();
      await database.drop();
    },
  };
}
