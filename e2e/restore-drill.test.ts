import { expect, test } from 'vitest';
import { restoreDrill } from './drills/restore-drill.ts';

test('at-most-one-effect: after a restore from a backup that is older than the world, the documented steps send nothing twice', async () => {
  const said: string[] = [];
  await restoreDrill({ finished: 2, say: (sentence) => said.push(sentence) });
  expect(said.at(-1)).toContain('no effect is there twice');
}, 240_000);
