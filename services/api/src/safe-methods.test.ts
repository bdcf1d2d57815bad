import { OPENAPI_PATH, ROUTES } from '@counterstamp/api-contract';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Browser, signedIn } from '../../../testing/browser.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';

let fixture: ApiFixture;
let api: RunningApi;
let person: Browser;
let run_id: string;
beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  person = await signedIn(fixture.store.owner, api.url, 'tess', ['approver', 'operator', 'auditor']);
  run_id = (await fixture.store.toAwaitingApproval({}, { bound: { method: 'session' } })).run_id;
});
afterAll(() => fixture.close());

/** Digest of every row of every table. What is kept to the minute (when a session was last seen) does not move within this test. */
async function everything(): Promise<string> {
  const tables = await fixture.store.owner<{ name: string }[]>`
    select relname as name from pg_class where relnamespace = 'cs'::regnamespace and relkind = 'r' order by relname`;
  const all = tables.map(
    ({ name }) =>
      `select '${name}' as t, md5(coalesce(string_agg(x::text, '' order by x::text), '')) as d from cs.${name} x`,
  );
  const rows = await fixture.store.owner.unsafe<{ t: string; d: string }[]>(all.join(' union all '));
  return JSON.stringify(rows.map(({ t, d }) => [t, d]));
}

const ADDRESSES = [...new Set([...Object.values(ROUTES).map((route) => route.path), OPENAPI_PATH])];

test.each(['GET', 'HEAD', 'OPTIONS'])(
  '%s leaves the database as it was at every address, with a session and without',
  async (method) => {
    const before = await everything();
    for (const path of ADDRESSES) {
      const url = `${api.url}${path.replace('{run_id}', run_id).replaceAll(/\{\w+\}/g, 'all')}`;
      for (const cookie of ['', person.cookie ?? '']) {
        for (let visit = 0; visit < 3; visit++) {
          const headers: Record<string, string> = cookie === '' ? {} : { cookie };
          const response = await fetch(url, { method, headers, redirect: 'manual' });
          await response.text();
          expect(response.status, path).not.toBe(500);
        }
      }
    }
    expect(await everything()).toBe(before);
  },
);
