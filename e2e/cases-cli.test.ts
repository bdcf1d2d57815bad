import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { explain } from '../apps/cli/src/failure.ts';
import { createProgram } from '../apps/cli/src/program.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../services/api/testing/api-fixture.ts';
import { expectUnchanged, type Sent } from '../services/api/testing/stored-bytes.ts';
import { realDoors } from '../services/api/testing/workflow-doors.ts';
import { asCreateBody, caseValue } from '../testing/case-inputs/case-input.ts';
import { fuzzDoor } from '../testing/case-inputs/fuzzed-bodies.ts';

let fixture: ApiFixture;
let api: RunningApi;
let key: string;
let folder: string;
const printed: string[] = [];

beforeAll(async () => {
  fixture = await apiFixture();
  // Ten thousand files in a few seconds are more than any agent sends.
  const rates = { per_principal: 1_000_000, per_tenant: 1_000_000, unauthenticated: 1_000_000 };
  api = await fixture.start({ workflows: realDoors, rates });
  key = (await fixture.store.principal('requester')).key;
  folder = await mkdtemp(join(tmpdir(), 'cs-cli-door-'));
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed.push(String(text));
    return true;
  });
});
afterAll(async () => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  await fixture.close();
  await rm(folder, { recursive: true });
});

let files = 0;
/** `counterstamp run create --file …` in this process: the file is read, sent and answered as on a terminal. */
async function runCreate(body: string | Uint8Array): Promise<void> {
  const file = join(folder, `${++files}.json`);
  await writeFile(file, body);
  const access = ['--file', file, '--url', api.url, '--key', key, '--json'];
  await createProgram().parseAsync(['run', 'create', ...access], { from: 'user' });
}

/** What a person reads when the command fails. */
async function refusalOf(body: string | Uint8Array): Promise<string> {
  const failure: unknown = await runCreate(body).then(
    () => undefined,
    (error: unknown) => error,
  );
  if (failure === undefined) throw new Error('it was accepted');
  return explain(failure).sentence;
}

test.each([
  ['O01', '01a', 'duplicate_member at /input/requested_amount_minor'],
  ['O01', '01b', 'duplicate_member at /input/requested_amount_minor'],
  ['O02', '02a', 'text_not_well_formed at /input/metadata/note'],
  ['O02', '02b', 'text_not_well_formed at /input/metadata/note'],
  ['O02', '02c', 'text_not_well_formed at /input/metadata'],
  ['O03', '03a', 'number_not_safe at /input/metadata/order_no'],
  ['O03', '03c', 'number_not_safe at /input/requested_amount_minor'],
  ['O03', '03d', 'number_not_safe at /input/requested_amount_minor'],
  ['O05', '05a', 'unknown_member at /input/__proto__'],
  ['O05', '05b', 'unknown_member at /input/amount'],
  ['O05', '05c', 'unknown_member at /input/metadata/__proto__'],
  ['O07', '07a', 'amount_not_integer at /input/requested_amount_minor'],
  ['O07', '07b', 'amount_not_integer at /input/requested_amount_minor'],
  ['O08', '08a', 'amount_not_positive at /input/requested_amount_minor'],
  ['O08', '08b', 'amount_missing at /input/requested_amount_minor'],
  ['O08', '08c', 'amount_missing at /input/requested_amount_minor'],
  ['O08', '08d', 'amount_missing at /input/requested_amount_minor'],
  ['O08', '08e', 'amount_not_positive at /input/requested_amount_minor'],
  ['O13', '13a', 'unknown_member at /status'],
])('%s the file doc-%s is refused at the command line with %s, and no run is made', async (_, name, said) => {
  const before = await fixture.runCount();
  expect(await refusalOf(asCreateBody(name, { request_id: `case_${name}` }))).toContain(`(400 ${said})`);
  expect(await fixture.runCount()).toBe(before);
});

test.each(['02d', '03b', '04a', '04b', '12a'])(
  'O02 O03 O04 O12 the file doc-%s is accepted at the command line, its value unchanged',
  async (name) => {
    const body = asCreateBody(name, { request_id: `case_${name}` });
    printed.length = 0;
    await runCreate(body);
    const { run_id } = JSON.parse(printed.join('')) as { run_id: string };
    await expectUnchanged(fixture.store.owner, [{ run_id, sent: JSON.parse(body) as Sent }]);
  },
);

test('O13 no command executes or dispatches: a run that waits for a person waits', () => {
  const all = createProgram().commands.flatMap((command) => [command, ...command.commands]);
  expect(all.map((command) => command.name()).filter((name) => /execute|dispatch|send|force/.test(name))).toEqual([]);
});

test('O07 an amount is never taken as a decimal: every text of doc-07c is refused, and no option of the command line takes one', async () => {
  const { decimal_amounts } = caseValue('07c') as { decimal_amounts: [string, string][] };
  expect(decimal_amounts).toHaveLength(13);
  for (const [amount, currency] of decimal_amounts) {
    const body = asCreateBody('12a', { request_id: 'case_decimal' })
      .replace('1999', JSON.stringify(amount))
      .replace('USD', currency);
    expect(await refusalOf(body)).toContain('(400 amount_not_integer at /input/requested_amount_minor)');
  }
  const all = createProgram().commands.flatMap((command) => [command, ...command.commands]);
  const options = all.flatMap((command) => command.options.map((option) => option.long ?? option.flags));
  expect(options.filter((option) => /amount|money|currency/i.test(option))).toEqual([]);
});

test('ten thousand files at the command line: never a fault of ours, a row only for what was accepted, not one byte of that changed, no stack shown', async () => {
  let accepted = 0;
  let rows = await fixture.runCount();
  const sentBy = new Map<string, Sent>();
  printed.length = 0;
  // The cases above went over a socket; ten thousand of them would spend their time there.
  vi.stubGlobal('fetch', (url: string, init: RequestInit) => api.api.fetch(new Request(url, init)));
  const sent = await fuzzDoor(
    async (body) => {
      try {
        await runCreate(body);
        const sent = JSON.parse(new TextDecoder().decode(body)) as Sent & { request_id: string };
        sentBy.set(sent.request_id, sent);
      } catch (error) {
        const { sentence } = explain(error);
        expect(sentence).toMatch(/^The API refused \((400|403|404|409|413|415) [a-z_]+/);
        expect(sentence).not.toMatch(/\n\s+at /);
      }
    },
    async () => {
      const answers = printed.splice(0).map((text) => JSON.parse(text) as { run_id: string; created: boolean });
      const made = answers.filter((answer) => answer.created).map(({ run_id }) => run_id.slice('run_'.length));
      rows += made.length;
      accepted += made.length;
      expect(await fixture.runCount()).toBe(rows);
      const named = await fixture.store.owner<{ run_id: string; request_id: string }[]>`
        select 'run_' || run_id as run_id, request_id from cs.run where run_id = any (${`{${made.join(',')}}`}::uuid[])`;
      const created = named.map(({ run_id, request_id }) => {
        const sent = sentBy.get(request_id);
        if (sent === undefined) throw new Error(`nobody sent ${request_id}`);
        return { run_id, sent };
      });
      await expectUnchanged(fixture.store.owner, created);
    },
  );
  // A fuzz that is always refused proves nothing.
  expect(accepted).toBeGreaterThan(sent / 10);
  expect(api.logged).toEqual([]);
}, 180_000);
