import { defineConfig } from 'vitest/config';

export default defineConfig({
  resolve: { conditions: ['source'] },
  ssr: { resolve: { conditions: ['source'] } },
  test: {
    globalSetup: ['testing/global-setup.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'parts',
          include: [
            'packages/*/src/**/*.test.ts',
            'services/*/src/**/*.test.ts',
            'apps/*/src/**/*.test.ts',
            'testing/**/*.test.ts',
            'formal/**/*.test.ts',
            'simulation/**/*.test.ts',
          ],
        },
      },
      {
        extends: true,
        test: {
          name: 'fleet',
          include: ['e2e/**/*.test.ts', 'chaos/**/*.test.ts'],
          // Whole fleets on two cores: one after the other, and not beside the other tests, or deadlines of the fast profile pass by load alone.
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
