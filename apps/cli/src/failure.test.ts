import { ApiUnreachable, ProblemError } from '@counterstamp/api-contract';
import { StoreUnavailable } from '@counterstamp/manifest-store';
import { describe, expect, test } from 'vitest';
import { CliFailure, EXIT, explain } from './failure.ts';

const database = (code: string, message: string) => Object.assign(new Error(message), { code });

describe('whatever is thrown becomes one sentence, a next step and an exit code', () => {
  test('our own failures say it themselves', () => {
    expect(explain(new CliFailure('No.', 'Try this.', EXIT.usage))).toEqual({
      sentence: 'No.',
      next: 'Try this.',
      exit: 2,
    });
  });

  test('a refusal of the api names status, code and place', () => {
    const refused = new ProblemError({
      type: 'urn:counterstamp:error:amount_not_positive',
      title: 'The amount must be above zero.',
      status: 400,
      code: 'amount_not_positive',
      path: '/input/requested_amount_minor',
      detail: 'The amount must be above zero.',
    });
    expect(explain(refused)).toMatchObject({
      sentence:
        'The API refused (400 amount_not_positive at /input/requested_amount_minor): The amount must be above zero.',
      exit: 1,
    });
  });

  test('an api that is away is told with what to start', () => {
    const told = explain(new ApiUnreachable('GET http://127.0.0.1:1/v1/runs had no answer: fetch failed'));
    expect(told.sentence).toContain('had no answer');
    expect(told.next).toContain('counterstamp up');
  });

  test.each([
    [database('ECONNREFUSED', 'connect ECONNREFUSED 127.0.0.1:1'), 'Postgres cannot be reached'],
    [
      new StoreUnavailable('the database does not answer', {
        cause: database('CONNECT_TIMEOUT', 'write CONNECT_TIMEOUT db:5432'),
      }),
      'Postgres cannot be reached',
    ],
    [database('28P01', 'password authentication failed for user "app"'), 'Postgres refused the login'],
    [database('3D000', 'database "app" does not exist'), 'database "app" does not exist'],
    [database('42P01', 'relation "cs.run" does not exist'), 'no Counterstamp schema yet'],
  ])('%s', (error, words) => {
    const told = explain(error);
    expect(told.sentence).toContain(words);
    expect(told.next).toBeDefined();
    expect(told.exit).toBe(1);
  });

  test('nothing ever shows a stack', () => {
    for (const thrown of [new TypeError('x is undefined\n    at somewhere (file.js:1:1)'), 'text', undefined]) {
      expect(JSON.stringify(explain(thrown))).not.toMatch(/\bat .*:\d+:\d+/);
    }
  });
});
