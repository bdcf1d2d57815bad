import { STAGES } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { Hint, hintJobId } from './hint.ts';

const RUN = 'run_019ad8b2-7c11-7abc-8def-0123456789ab';

test('a job id says stage, run and revision and keeps to the characters that BullMQ takes', () => {
  expect(hintJobId('execute', { run_id: RUN, revision: 7 })).toBe(`execute-${RUN}-7`);
  for (const stage of STAGES) {
    for (const run_id of [RUN, RUN.slice(4)]) {
      expect(hintJobId(stage, { run_id, revision: Number.MAX_SAFE_INTEGER })).toMatch(/^[A-Za-z][A-Za-z0-9_-]*$/);
    }
  }
});

describe('a hint', () => {
  test.each([
    [{ run_id: RUN, revision: 1 }, true],
    [{ run_id: RUN.slice(4), revision: 1 }, true],
    [{ run_id: RUN, revision: 0 }, false],
    [{ run_id: RUN, revision: 1.5 }, false],
    [{ run_id: RUN, revision: '1' }, false],
    [{ run_id: RUN.toUpperCase(), revision: 1 }, false],
    [{ run_id: `${RUN}\n`, revision: 1 }, false],
    [{ run_id: 'run_------------------------------------', revision: 1 }, false],
    [{ run_id: RUN }, false],
    [{ run_id: RUN, revision: 1, state: 'completed' }, false],
    [[RUN, 1], false],
    [null, false],
  ])('%j: %s', (input, valid) => {
    expect(Hint.safeParse(input).success).toBe(valid);
  });
});
