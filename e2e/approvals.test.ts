import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient, OPENAPI_PATH, Passkeys, ROUTES, type RunView } from '@counterstamp/api-contract';
import { canonicalJson, digestOf, type JsonObject, type RunId, uuidOfRunId } from '@counterstamp/manifest-core';
import {
  addPerson,
  createApiKey,
  disablePerson,
  invitePerson,
  type PrincipalRole,
  revokePasskeyOf,
  serviceUrl,
  setPerson,
} from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type RunningProvider, startIdentityProvider } from '../services/api/testing/identity-provider.ts';
import { type Browser, type BrowserReply, createBrowser, invited, ORIGIN } from '../testing/browser.ts';
import { asCreateBody, asProposeBody, caseAction, caseValue } from '../testing/case-inputs/case-input.ts';
import { type Fleet, poll } from '../testing/fleet.ts';
import { TEST_ROLE_PREFIX, TEST_SECRET } from '../testing/store-fixture.ts';
import { startTcpProxy, type TcpProxy } from '../testing/tcp-proxy.ts';
import { testFleet } from '../testing/test-fleet.ts';
import { testIds } from '../testing/test-ids.ts';

const tenant_id = 'shop_north';

/** Minor units of which the refund policy asks two people, one of them of finance. */
const LARGE = 60_000;

interface Person {
  name: string;
  principal_id: string;
  credential_id: string;
  /** The same session in the same browser, at each of the two apis. */
  at: readonly [Browser, Browser];
}

type Seeded = Awaited<ReturnType<Fleet['seed']>>;
/** A run that waits for people, and what it is about. */
interface Waiting extends Seeded {
  run_id: RunId;
  run: RunView;
}

let fleet: Fleet;
let provider: RunningProvider;
/** Stands between the second api and its database. */
let database: TcpProxy;
let urls: readonly [string, string];
let operator: ReturnType<typeof createClient>;
let folder: string;

let ana: Person;
let ben: Person;
let others: Person[];
let finance: [Person, Person];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cs-testing-approvals-'));
  provider = await startIdentityProvider(`${ORIGIN}${ROUTES.oidcCallback.path}`);
  // Everybody comes from one address here.
  fleet = await testFleet('postgres', undefined, {
    COUNTERSTAMP_DEV: '0',
    COUNTERSTAMP_RATE_UNAUTHENTICATED: '100000',
  });
  const { host, port, database: name, user, pass } = fleet.owner.options;
  database = await startTcpProxy({ host: host[0] ?? '', port: port[0] ?? 0 });
  const owner = new URL(`postgres://127.0.0.1:${database.port}/${name}`);
  Object.assign(owner, { username: user, password: String(pass ?? '') });
  const { issuer, client_id, client_secret } = provider.settings;
  const second = await fleet.start('api', {
    COUNTERSTAMP_API_DATABASE_URL: serviceUrl(owner.href, 'api', TEST_SECRET, TEST_ROLE_PREFIX),
    COUNTERSTAMP_OIDC_ISSUER: issuer,
    COUNTERSTAMP_OIDC_CLIENT_ID: client_id,
    COUNTERSTAMP_OIDC_CLIENT_SECRET: client_secret,
  });
  urls = [fleet.apiUrl, `http://127.0.0.1:${second.port}`];
  const { key } = await createApiKey(fleet.owner, testIds, { tenant_id, name: 'olga', role: 'operator' });
  operator = createClient({ baseUrl: fleet.apiUrl, key, fetch });
  [ana, ben] = await Promise.all([person('ana', ['approver']), person('ben', ['approver'])]);
  others = await Promise.all(['cy', 'dee'].map((one) => person(one, ['approver'])));
  finance = await Promise.all([person('fay', ['approver'], ['finance']), person('finn', ['approver'], ['finance'])]);
}, 90_000);
afterAll(async () => {
  await fleet?.stop();
  await database?.close();
  await provider?.stop();
  await rm(folder, { recursive: true, force: true });
}, 30_000);

/** A person who enrolled at the first api and is signed in at both. */
async function person(name: string, roles: PrincipalRole[], groups: string[] = []): Promise<Person> {
  const { token } = await invited(fleet.owner, name, roles, { groups });
  return await enrolled(name, token);
}

async function enrolled(name: string, invitation: string): Promise<Person> {
  const browser = createBrowser(urls[0]);
  const reply = await browser.enrol(invitation);
  if (reply.status !== 201) throw new Error(`${name} did not enrol: ${JSON.stringify(reply.body)}`);
  const { passkeys } = Passkeys.parse((await browser.send('GET', ROUTES.listPasskeys.path)).body);
  const second = createBrowser(urls[1], browser.authenticator);
  const { principal_id } = reply.body;
  const credential_id = passkeys[0]?.credential_id ?? '';
  return { name, principal_id, credential_id, at: [browser, withSession(second, browser)] };
}

function withSession(browser: Browser, { cookie, session }: Browser): Browser {
  return Object.assign(browser, { cookie, session });
}

/** A person's browser at one api and the other in turn. */
function at(one: Person, n: number): Browser {
  return one.at[n % 2 === 0 ? 0 : 1];
}

const inputOf = ({ order_id }: Seeded, requested_amount_minor: number) => ({
  ...{ order_id, requested_amount_minor, currency: 'USD', reason: 'item arrived damaged' },
});

/** A request for a refund that waits for its approval. */
async function waiting(amount_minor = 4200, change: JsonObject = {}, requester = fleet.requester): Promise<Waiting> {
  const seeded = await fleet.seed({ amount_minor });
  const { request_id } = seeded;
  const { run_id } = await requester.createRun({ request_id, input: inputOf(seeded, amount_minor), ...change });
  return { ...seeded, run_id, run: await fleet.until(run_id, ['awaiting_approval']) };
}

/** Sends the bytes of a case as they are, and waits until its run waits. */
async function waitingCase(name: string): Promise<Waiting> {
  const amount_minor = caseAction(name).amount_minor;
  const seeded = await fleet.seed({ amount_minor });
  const { run_id } = await fleet.requester.createRun(new TextEncoder().encode(asCreateBody(name, seeded)));
  return { ...seeded, run_id, run: await fleet.until(run_id, ['awaiting_approval']) };
}

/** What the card shows of a waiting approval, as a decision repeats it. */
function shown({ approval }: RunView) {
  if (approval === null) throw new Error('nothing waits');
  const { approval_id, approval_digest, action_digest, action_revision } = approval;
  return { approval_id, approval_digest, action_digest, action_revision };
}

async function signed(browser: Browser, run: RunView, decision = 'approve', reason?: string) {
  const about = { ...shown(run), decision, ...(reason === undefined ? {} : { reason }) };
  const asked = await browser.challenge(run.run_id, about);
  if (asked.status !== 200) throw new Error(`no challenge: ${JSON.stringify(asked.body)}`);
  return await browser.sign(asked.body);
}

async function approve(browser: Browser, run: RunView): Promise<BrowserReply> {
  return await browser.decide(run.run_id, {
    ...shown(run),
    ...{ decision: 'approve', assertion: await signed(browser, run) },
  });
}

async function breakGlass(browser: Browser, run: RunView, reason: string): Promise<BrowserReply> {
  const assertion = await signed(browser, run, 'break_glass', reason);
  const body = { ...shown(run), decision: 'approve', break_glass: true, reason, assertion };
  return await browser.decide(run.run_id, body);
}

function reject(browser: Browser, run: RunView): Promise<BrowserReply> {
  return browser.decide(run.run_id, { ...shown(run), decision: 'reject' });
}

async function auditsOf(run_id: RunId): Promise<{ what: string; code: string; principal_id: string | null }[]> {
  return await fleet.owner`
    select what, code, principal_id from cs.audit_event where run_id = ${uuidOfRunId(run_id)}::uuid order by audit_id`;
}

/** The run still waits for its first decision exactly as it did, and nothing went out. */
async function expectUntouched({ run_id, run, payment_id }: Waiting): Promise<void> {
  const now = await fleet.requester.getRun(run_id);
  expect([now.state, now.revision, now.approval]).toEqual(['awaiting_approval', run.revision, run.approval]);
  expect(now.approval?.decisions).toEqual([]);
  expect(await fleet.ledger(payment_id)).toEqual([]);
}

/** The run was performed once, and proven. */
async function expectOnce({ run_id, payment_id }: Waiting): Promise<RunView> {
  const run = await fleet.until(run_id, ['completed']);
  expect(run.attempts).toHaveLength(1);
  expect(await fleet.ledger(payment_id)).toHaveLength(1);
  expect(await fleet.effects(payment_id)).toHaveLength(1);
  return run;
}

/** What happens while nothing is dispatched; afterwards the runs are looked at again at once. */
async function onHold<T>(act: () => Promise<T>): Promise<T> {
  await operator.setHold('all', { reason: 'a test looks at what happens meanwhile' });
  try {
    return await act();
  } finally {
    await operator.releaseHold('all');
    await fleet.owner`update cs.run set wake_at = cs.clock() where state = 'awaiting_approval' and decisions_sufficient`;
  }
}

/** Runs the command line as its user does, on a file where one is given. */
async function cli(args: readonly string[], body?: string): Promise<{ code: number; text: string }> {
  const file = join(folder, 'request.json');
  if (body !== undefined) await writeFile(file, body);
  const all = ['apps/cli/dist/main.js', ...args, ...(body === undefined ? [] : ['--file', file]), '--url', urls[1]];
  const child = spawn(process.execPath, all, {
    env: { PATH: process.env.PATH ?? '' },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 20_000,
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data: Buffer) => {
      text += data.toString('utf8');
    });
  }
  const [code] = (await once(child, 'close')) as [number];
  return { code, text };
}

/** Sends a body as its bytes are. */
async function post(url: string, path: string, body: string, headers: Record<string, string>) {
  const response = await fetch(`${url}${path}`, { method: 'POST', body, headers });
  return { status: response.status, body: (await response.json()) as { code?: string; path?: string } };
}

function asRequester(url: string, path: string, body: string) {
  const authorization = `Bearer ${fleet.keys.requester}`;
  return post(url, path, body, { authorization, 'content-type': 'application/json' });
}

describe('O10 a customer’s message that changes the policy', () => {
  test('O10 moves nothing: what claims its own approval is refused, what leans on the message is invalid, and the clean proposal waits for a person', async () => {
    const seeded = await fleet.seed({ amount_minor: 50_000 });
    const request = asCreateBody('10a', seeded);
    const claiming = asProposeBody('10b', seeded.order_id);
    const clean = claiming.replace(/,\s*"requires_approval": false,\s*"approved_by": "finance"/, '');
    expect(Object.keys((JSON.parse(clean) as { proposal: object }).proposal)).toHaveLength(5);

    const together = request.replace('"input":', `${claiming.trim().slice(1, -1)}, "input":`);
    for (const url of urls)
      expect(await asRequester(url, '/v1/runs', together)).toMatchObject({
        status: 400,
        body: { code: 'unknown_member', path: '/proposal/requires_approval' },
      });
    const atCommandLine = await cli(['run', 'create', '--key', fleet.keys.requester], together);
    expect(atCommandLine.text).toContain('(400 unknown_member at /proposal/requires_approval)');

    const waits = request.replace('"input":', '"proposer": "external", "input":');
    const { run_id } = await fleet.requester.createRun(new TextEncoder().encode(waits));
    const proposals = `/v1/runs/${run_id}/proposals`;
    const collected = await fleet.until(run_id, (run) => run.evidence_complete);
    expect(await asRequester(urls[1], proposals, claiming)).toMatchObject({
      status: 400,
      body: { code: 'unknown_member', path: '/proposal/requires_approval' },
    });
    expect(await auditsOf(run_id)).toMatchObject([{ what: 'propose', code: 'unknown_member' }]);

    const { text } = (caseValue('10a').evidence as { text: string }[])[0] ?? {};
    const message = collected.evidence.find((item) => item.kind === 'untrusted_context');
    expect(message).toMatchObject({ source_ref: 'request:inbox:msg_test_77', trusted: false, facts: { text } });
    const leaning = clean.replace('"operation":', `"evidence_refs": ["${message?.evidence_id}"], "operation":`);
    expect((await asRequester(urls[0], proposals, leaning)).status).toBeLessThan(300);
    const refused = await fleet.until(run_id, (run) => run.proposals.some(({ refusal }) => refusal !== null));
    expect(refused.proposals.at(-1)?.refusal?.code).toBe('proposal_invalid');
    expect([refused.approval, await fleet.ledger(seeded.payment_id)]).toEqual([null, []]);

    expect((await asRequester(urls[1], proposals, clean)).status).toBeLessThan(300);
    const run = await fleet.until(run_id, ['awaiting_approval']);
    expect(run.approval).toMatchObject({ policy: 'refund', policy_rule: 'one_person', approvals_required: 1 });
    const trusted = run.evidence.filter((item) => item.trusted).map((item) => item.evidence_id);
    expect(trusted).toEqual(expect.arrayContaining(run.action?.fields.evidence_refs as string[]));
    expect(JSON.stringify(run.approval?.display)).not.toContain('second pair of eyes');
    const card = await fleet.requester.approvalCard(run_id);
    expect(card.untrusted).toMatchObject([{ label: 'context', source: 'inbox:msg_test_77', text }]);
    expect([card.facts, card.standing.suffices]).toEqual([run.approval?.display, false]);
    expect(await fleet.ledger(seeded.payment_id)).toEqual([]);

    expect((await approve(ana.at[0], run)).status).toBe(200);
    await expectOnce({ ...seeded, run_id, run });
  });
});

describe('O11 many clicks at once, over two processes', () => {
  test('O11 twenty signed clicks of one person are one decision and one refund, and every click is told of it', async () => {
    const asked = await waiting();
    const { run_id, run } = asked;
    const clicks = await Promise.all(
      Array.from({ length: 20 }, async (_, n) => ({ n, assertion: await signed(at(ana, n), run) })),
    );
    const replies = await Promise.all(
      clicks.map(({ n, assertion }) => at(ana, n).decide(run_id, { ...shown(run), decision: 'approve', assertion })),
    );
    expect(replies.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200));
    expect(replies.filter(({ body }) => body.result === 'recorded')).toHaveLength(1);
    expect(new Set(replies.map(({ body }) => body.decision.decision_id)).size).toBe(1);
    expect((await expectOnce(asked)).approval?.decisions).toHaveLength(1);
  });

  test('O11 five people who click four times each on what needs two of them are one decision each, one refund, and no vote is lost', async () => {
    const asked = await waiting(LARGE);
    const { run_id, run } = asked;
    expect(run.approval).toMatchObject({ approvals_required: 2, groups_required: { finance: 1 } });
    const people = [...others, ben, ana, finance[0]];
    const clicks = await Promise.all(
      people.flatMap((one) => [0, 1, 2, 3].map(async (n) => ({ one, n, assertion: await signed(at(one, n), run) }))),
    );
    const replies = await Promise.all(
      clicks.map(async ({ one, n, assertion }) => ({
        one,
        reply: await at(one, n).decide(run_id, { ...shown(run), decision: 'approve', assertion }),
      })),
    );
    const voters: string[] = [];
    for (const one of people) {
      const mine = replies.filter((each) => each.one === one).map((each) => each.reply);
      if (mine.some(({ body }) => body.result === 'recorded')) {
        voters.push(one.principal_id);
        expect(mine.map(({ body }) => body.result).sort()).toEqual(['recorded', 'repeated', 'repeated', 'repeated']);
        expect(new Set(mine.map(({ body }) => body.decision.decision_id)).size).toBe(1);
      } else {
        // Too late to count, and told which decisions stand.
        for (const { status, body } of mine) {
          expect([status, body.code]).toEqual([409, 'already_decided']);
          expect(body.decisions?.length).toBeGreaterThanOrEqual(2);
        }
      }
    }
    expect(voters).toContain(finance[0].principal_id);
    const done = await expectOnce(asked);
    expect(done.approval?.decisions.map(({ principal_id }) => principal_id).sort()).toEqual(voters.sort());
  });

  test('O11 an approval and a rejection at once, 25 times: never a refund after a rejection, and whoever loses is told what won', async () => {
    const all = await Promise.all(Array.from({ length: 25 }, () => waiting()));
    for (const [n, asked] of all.entries()) {
      const { run_id, run, payment_id } = asked;
      // Both signed, or the rejection would have less to do and win every time.
      const [ayes, noes] = [at(ana, n), at(ben, n + 1)];
      const [forIt, againstIt] = await Promise.all([signed(ayes, run), signed(noes, run, 'reject')]);
      const [yes, no] = await Promise.all([
        ayes.decide(run_id, { ...shown(run), decision: 'approve', assertion: forIt }),
        noes.decide(run_id, { ...shown(run), decision: 'reject', assertion: againstIt }),
      ]);
      for (const { body } of [yes, no]) expect(body.detail ?? '').not.toMatch(/fail/i);
      if (no.status === 200) {
        // It came first, or it came second and stopped what was approved and not yet dispatched.
        expect(no.body).toMatchObject({ result: 'recorded', state: 'rejected' });
        if (yes.status !== 200)
          expect(yes).toMatchObject({
            status: 409,
            body: { code: 'already_decided', decisions: [{ decision: 'reject', principal_id: ben.principal_id }] },
          });
        expect((await fleet.requester.getRun(run_id)).state).toBe('rejected');
        expect(await fleet.ledger(payment_id)).toEqual([]);
      } else {
        expect(yes.body.result).toBe('recorded');
        expect(no).toMatchObject({
          status: 409,
          body: { code: 'already_decided', decisions: [{ decision: 'approve', principal_id: ana.principal_id }] },
        });
        await expectOnce(asked);
      }
    }
  });

  test('O11 a click two seconds later, or when all is done, changes nothing: the same again is what stands, anything else is told so', async () => {
    const asked = await waiting();
    const { run } = asked;
    const expectSettled = async (recorded: BrowserReply['body']['decision'], dispatched: boolean) => {
      for (const browser of ana.at)
        expect((await browser.decide(run.run_id, { ...shown(run), decision: 'approve' })).body).toMatchObject({
          result: 'repeated',
          decision: recorded,
        });
      // Before the dispatch another person's rejection is a veto, not a late click.
      for (const late of [reject(ana.at[1], run), ...(dispatched ? [reject(ben.at[1], run)] : [])])
        expect(await late).toMatchObject({ status: 409, body: { code: 'already_decided', decisions: [recorded] } });
      const other = await ben.at[1].decide(run.run_id, { ...shown(run), decision: 'approve' });
      expect(other).toMatchObject({ status: 409, body: { code: 'already_decided', decisions: [recorded] } });
      expect(other.body.detail).not.toMatch(/fail/i);
    };
    const recorded = await onHold(async () => {
      const { decision } = (await approve(ana.at[0], run)).body;
      await poll(
        async () =>
          (
            await fleet.owner`select from cs.decision
              where decision_id = ${decision.decision_id} and decided_at + interval '2 seconds' <= cs.clock()`
          ).length === 1,
        10_000,
        'two seconds did not pass',
      );
      await expectSettled(decision, false);
      return decision;
    });
    await expectOnce(asked);
    await expectSettled(recorded, true);
    expect((await expectOnce(asked)).approval?.decisions).toEqual([expect.objectContaining(recorded)]);
  });
});

describe('O12 an approval of one action', () => {
  test('O12 decides nothing about another: neither by its id, nor by its digests, nor by its signature', async () => {
    const [first, second] = [await waitingCase('12a'), await waitingCase('12b')];
    const assertion = await signed(ana.at[0], first.run);
    const granted = { ...shown(first.run), decision: 'approve', assertion };
    expect((await ana.at[0].decide(first.run_id, granted)).status).toBe(200);

    const mine = { ...shown(second.run), decision: 'approve' };
    for (const browser of ana.at) {
      const decide = (body: Record<string, unknown>) => browser.decide(second.run_id, body);
      expect(await decide(granted)).toMatchObject({
        status: 404,
        body: { code: 'approval_not_found', path: '/approval_id' },
      });
      expect(await decide({ ...mine, assertion })).toMatchObject({ status: 409, body: { code: 'challenge_invalid' } });
      for (const digest of ['approval_digest', 'action_digest'] as const) {
        const other = { ...mine, [digest]: granted[digest] };
        expect(await decide(other)).toMatchObject({ status: 409, body: { code: 'digest_mismatch' } });
        expect((await browser.challenge(second.run_id, other)).body.code).toBe('digest_mismatch');
      }
    }
    await expectUntouched(second);
    await expectOnce(first);
    const [call] = await fleet.ledger(first.payment_id);
    expect(JSON.parse(call?.body ?? '')).toMatchObject({ amount: 1999 });
  });
});

describe('O13 a caller who says that it is approved', () => {
  test('O13 is refused at every door, nobody executes by asking, the agent’s key decides nothing, and each try is kept', async () => {
    const asked = await waitingCase('12a');
    const { run_id, run } = asked;
    const runs = async () => (await fleet.owner`select from cs.run`).length;
    const refusedTries = async () =>
      (
        await fleet.owner`select from cs.audit_event
          where what = 'create_run' and code = 'unknown_member' and detail ->> 'path' = '/status'`
      ).length;
    const before = await runs();
    for (const [n, url] of urls.entries()) {
      const seeded = await fleet.seed({ amount_minor: 1999 });
      expect(await asRequester(url, '/v1/runs', asCreateBody('13a', seeded))).toMatchObject({
        status: 400,
        body: { code: 'unknown_member', path: '/status' },
      });
      for (const verb of ['execute', 'dispatch', 'approve'])
        expect(await asRequester(url, `/v1/runs/${run_id}/${verb}`, '{}')).toMatchObject({
          status: 404,
          body: { code: 'route_not_found' },
        });
      const decision = JSON.stringify({ ...shown(run), decision: 'approve' });
      expect(await asRequester(url, `/v1/runs/${run_id}/decisions`, decision)).toMatchObject({
        status: 403,
        body: { code: 'not_an_approver' },
      });
      expect(await auditsOf(run_id)).toHaveLength(n + 1);
    }
    for (const [key, code] of [
      [fleet.keys.requester, 'not_an_approver'],
      // Nor does an approver's key: it proves no person.
      [fleet.keys.approver, 'approvals_need_development'],
    ] as const) {
      const { code: exit, text } = await cli(['approve', run_id, '--yes', '--key', key]);
      expect([exit === 0, text]).toEqual([false, expect.stringContaining(code)]);
    }
    expect((await auditsOf(run_id)).map(({ what, code }) => `${what} ${code}`)).toEqual([
      ...['decide not_an_approver', 'decide not_an_approver', 'decide not_an_approver'],
      'decide approvals_need_development',
    ]);
    expect([await runs(), await refusedTries()]).toEqual([before, urls.length]);
    await expectUntouched(asked);
  });
});

describe('O14 what the approver sees', () => {
  test.each(['14b', '14c'])(
    'O14 an identifier with a character that deceives (doc-%s) is refused at every door',
    async (name) => {
      const body = asCreateBody(name, await fleet.seed({ amount_minor: 1999 }));
      for (const url of urls)
        expect(await asRequester(url, '/v1/runs', body)).toMatchObject({
          status: 400,
          body: { code: 'identifier_charset', path: '/input/order_id' },
        });
      const { code, text } = await cli(['run', 'create', '--key', fleet.keys.requester], body);
      expect([code === 0, text]).toEqual([false, expect.stringContaining('identifier_charset at /input/order_id')]);
    },
  );

  /** The lines of the card are those that are bound, and the digest that is decided on is the stored one. */
  async function expectBound({ run_id, run }: Waiting): Promise<void> {
    const { approval, action } = run;
    const bound = JSON.parse(approval?.canonical ?? '') as Record<string, string>;
    expect(digestOf('cs.display.v1', canonicalJson(approval?.display ?? []))).toBe(bound.display_digest);
    expect(digestOf('cs.action.v1', action?.canonical ?? '')).toBe(approval?.action_digest);
    const [stored] = await fleet.owner<{ action_digest: string }[]>`
      select action_digest from cs.action where run_id = ${uuidOfRunId(run_id)}::uuid`;
    expect([bound.action_digest, stored?.action_digest]).toEqual([approval?.action_digest, approval?.action_digest]);
  }

  test('O14 the amount comes from the payload alone, and what hides or reorders stands as visible escapes (doc-14a), also on a terminal', async () => {
    const asked = await waitingCase('14a');
    const lines = asked.run.approval?.display ?? [];
    expect(lines.filter(({ field }) => field === 'amount_minor')).toMatchObject([{ value: 'USD 1,999.00' }]);
    const sentAlong = lines.filter(({ field }) => field === 'metadata');
    expect(sentAlong.map(({ label, flagged }) => [label, flagged])).toEqual([
      ['Sent along (free-form)', true],
      ['Sent along (free-form)', false],
    ]);
    const note = 'refund to ⟦U+202E⟧tset.elpmaxe@ana⟦U+202C⟧, amount 19.99⟦U+200B⟧ USD ⟦U+2066⟧ok⟦U+2069⟧';
    expect(sentAlong.map(({ value }) => value)).toEqual([
      `{"note":"${note}"}`,
      '{"summary":"Refund 19.99 USD to the customer"}',
    ]);
    expect(lines.filter(({ value }) => value.includes('19.99')).every(({ field }) => field === 'metadata')).toBe(true);
    // The payload itself is as it was sent.
    expect(asked.run.action?.fields.metadata).toMatchObject({ note: caseAction('14a').note });
    await expectBound(asked);
    const card = await fleet.requester.approvalCard(asked.run_id);
    expect([card.facts, card.flagged, card.action_digest]).toEqual([lines, true, asked.run.action?.digest]);
    const { text } = await cli(['run', 'show', asked.run_id, '--key', fleet.keys.requester]);
    expect(text).toContain('USD 1,999.00');
    expect(text).toContain('⟦U+202E⟧tset.elpmaxe@ana⟦U+202C⟧');
    expect(text).not.toMatch(/[\u200b\u202a-\u202e\u2066-\u2069]/);
  });

  test('O14 a long note is on the card to its last word (doc-14d)', async () => {
    const asked = await waitingCase('14d');
    const note = caseAction('14d').note as string;
    expect(asked.run.approval?.display.filter(({ field }) => field === 'metadata')).toMatchObject([
      { value: canonicalJson({ note }), flagged: false },
    ]);
    await expectBound(asked);
    const { text } = await cli(['run', 'show', asked.run_id, '--key', fleet.keys.requester]);
    expect(text.replaceAll(/\s+/g, ' ')).toContain(note.slice(-80));
  });
});

describe('O15 who the approver is', () => {
  test('O15 a d f whoever asked approves nothing in any spelling of their name, however small, but may reject', async () => {
    const name = 'ann@example.test';
    const added = await addPerson(fleet.owner, testIds, {
      ...{ tenant_id, name, roles: ['approver'], groups: [], owner_of: [] },
    });
    const { key, principal_id } = await createApiKey(fleet.owner, testIds, {
      ...{ tenant_id, name: 'Ann@Example.TEST', role: 'requester' },
    });
    expect(added).toMatchObject({ principal_id });
    const again = { tenant_id, name: 'ANN@example.test', roles: [], groups: [], owner_of: [] };
    expect(await addPerson(fleet.owner, testIds, again)).toMatchObject({ kind: 'refused', code: 'name_taken' });
    const invitation = await invitePerson(fleet.owner, testIds, {
      tenant_id,
      name: 'ANN@EXAMPLE.test',
      expiresInMs: 600_000,
    });
    if (invitation.kind === 'refused') throw new Error(`not invited: ${invitation.code}`);
    const ann = await enrolled(name, invitation.token);
    expect(ann.principal_id).toBe(principal_id);

    const small = await waiting(1, {}, createClient({ baseUrl: urls[1], key, fetch }));
    for (const browser of ann.at)
      expect(await approve(browser, small.run)).toMatchObject({
        status: 403,
        body: { code: 'self_approval', path: '/decision' },
      });
    await expectUntouched(small);
    const refusal = { what: 'decide', code: 'self_approval', principal_id };
    expect(await auditsOf(small.run_id)).toEqual([refusal, refusal]);
    expect(await reject(ann.at[1], small.run)).toMatchObject({
      status: 200,
      body: { state: 'rejected', decision: { decision: 'reject', principal_id } },
    });
  });

  test('O15 b a body that names the decider (doc-15a) is refused, and the try is kept', async () => {
    const asked = await waiting();
    const { decision, decided_by } = caseValue('15a');
    for (const browser of ana.at) {
      const assertion = await signed(browser, asked.run);
      expect(
        await browser.decide(asked.run_id, { ...shown(asked.run), decision, decided_by, assertion }),
      ).toMatchObject({ status: 400, body: { code: 'unknown_member', path: '/decided_by' } });
    }
    const kept = { what: 'decide', code: 'unknown_member', principal_id: ana.principal_id };
    expect(await auditsOf(asked.run_id)).toEqual([kept, kept]);
    await expectUntouched(asked);
  });

  test.each([
    ['refuses connections', () => database.cut()],
    ['answers nothing', async () => database.holdReplies()],
  ])(
    'O15 c while the store of sessions %s a decision is answered 503 and not recorded; once it is back it counts, as the person’s own',
    async (_, cut) => {
      const asked = await waiting();
      const assertion = await signed(ana.at[1], asked.run);
      const body = { ...shown(asked.run), decision: 'approve', assertion };
      await cut();
      try {
        expect(await ana.at[1].decide(asked.run_id, body)).toMatchObject({
          status: 503,
          body: { code: 'store_unavailable' },
        });
      } finally {
        await database.heal();
      }
      await poll(async () => (await fetch(`${urls[1]}/readyz`)).ok, 10_000, 'the second api did not come back');
      await expectUntouched(asked);
      expect((await ana.at[1].decide(asked.run_id, body)).body.result).toBe('recorded');
      const done = await expectOnce(asked);
      expect(done.approval?.decisions).toMatchObject([{ principal_id: ana.principal_id, method: 'passkey' }]);
    },
  );

  test('O15 e neither the person for whom an agent acts nor the one who owns the agent approves; somebody else does', async () => {
    const { key } = await createApiKey(fleet.owner, testIds, { tenant_id, name: 'support-7', role: 'requester' });
    const owner = await person('owen', ['approver']);
    await setPerson(fleet.owner, { tenant_id, name: 'owen', owner_of: ['support-7'] });
    const agent = createClient({ baseUrl: urls[0], key, fetch });
    const asked = await waiting(4200, { on_behalf_of: others[0]?.principal_id ?? '' }, agent);
    for (const who of [owner, ...others.slice(0, 1)])
      for (const browser of who.at)
        expect(await approve(browser, asked.run)).toMatchObject({ status: 403, body: { code: 'self_approval' } });
    await expectUntouched(asked);
    expect((await approve(ben.at[1], asked.run)).body.result).toBe('recorded');
    expect((await expectOnce(asked)).approval?.decisions).toMatchObject([{ principal_id: ben.principal_id }]);
  });
});

describe('O16 what only looks, and what comes from a foreign page', () => {
  test('O16 GET, HEAD and OPTIONS of every address that we have or send, three times, without and with a session, change nothing, and no answer may be framed', async () => {
    const asked = await waiting();
    const login = await fetch(`${urls[1]}${ROUTES.oidcLogin.path}`, { redirect: 'manual' });
    expect([login.status, new URL(login.headers.get('location') ?? '').origin]).toEqual([
      303,
      provider.settings.issuer,
    ]);
    const name = 'ivy';
    const { token: invitation } = await invited(fleet.owner, name, ['approver']);
    const addresses = [...Object.values(ROUTES).map((route) => route.path), OPENAPI_PATH]
      .map((path) => path.replace('{run_id}', asked.run_id).replaceAll(/\{\w+\}/g, 'all'))
      // A browser keeps what stands behind the # of a link; a scanner may not.
      .concat('/', '/enrol', `/enrol?${invitation}`, `/v1/enrolment?invitation=${invitation}`)
      .concat(`/runs/${asked.run_id}`, `${ROUTES.oidcCallback.path}?code=abc&state=abc`);
    for (const [n, url] of urls.entries())
      for (const path of new Set(addresses))
        for (const method of ['GET', 'HEAD', 'OPTIONS'])
          for (const cookie of [undefined, at(ana, n).cookie]) {
            const headers = cookie === undefined ? {} : { cookie };
            for (let visit = 0; visit < 3; visit += 1) {
              const response = await fetch(`${url}${path}`, { method, headers, redirect: 'manual' });
              await response.arrayBuffer();
              const what = `${method} ${path}`;
              expect([429, 500], what).not.toContain(response.status);
              expect(response.headers.get('x-frame-options'), what).toBe('DENY');
              expect(response.headers.get('content-security-policy'), what).toContain("frame-ancestors 'none'");
              expect(response.headers.get('set-cookie') ?? '', what).not.toContain('cs_session');
            }
          }
    await expectUntouched(asked);
    const ivy = await enrolled(name, invitation);
    expect((await approve(ivy.at[1], asked.run)).body.result).toBe('recorded');
    await expectOnce(asked);
  });

  test('O16 a form of a foreign page that brings the approver’s cookie decides nothing and uses up no invitation', async () => {
    const asked = await waiting();
    const path = `/v1/runs/${asked.run_id}/decisions`;
    const json = JSON.stringify({
      ...shown(asked.run),
      decision: 'approve',
      assertion: await signed(ana.at[0], asked.run),
    });
    const form = new URLSearchParams({ ...shown(asked.run), decision: 'approve', action_revision: '1' }).toString();
    const urlencoded = 'application/x-www-form-urlencoded';
    const token = ana.at[0].session?.csrf_token ?? '';
    const own = { origin: ORIGIN, 'x-csrf-token': token };
    const TRIES: readonly [body: string, headers: Record<string, string>, status: number, code: string][] = [
      [form, { origin: 'https://evil.example', 'content-type': urlencoded }, 403, 'csrf_refused'],
      [json, { origin: 'https://evil.example', 'content-type': 'text/plain' }, 403, 'csrf_refused'],
      [json, { origin: 'null', 'content-type': 'application/json' }, 403, 'csrf_refused'],
      [json, { 'content-type': 'application/json', 'x-csrf-token': token }, 403, 'csrf_refused'],
      [
        json,
        { origin: 'https://evil.example', 'content-type': 'application/json', 'x-csrf-token': token },
        403,
        'csrf_refused',
      ],
      [json, { origin: ORIGIN, 'content-type': 'application/json' }, 403, 'csrf_refused'],
      [form, { ...own, 'content-type': urlencoded }, 415, 'content_type_unsupported'],
      [json, { ...own, 'content-type': 'text/plain' }, 415, 'content_type_unsupported'],
    ];
    for (const [n, url] of urls.entries()) {
      const cookie = at(ana, n).cookie ?? '';
      for (const [body, headers, status, code] of TRIES)
        expect(await post(url, path, body, { cookie, ...headers })).toMatchObject({ status, body: { code } });
    }
    await expectUntouched(asked);

    const name = 'ike';
    const { token: invitation } = await invited(fleet.owner, name, ['approver']);
    for (const url of urls)
      for (const [route, body] of [
        ['/v1/enrolment/options', { invitation }],
        ['/v1/enrolment', { invitation, name: 'x', response: {} }],
      ] as const)
        expect(
          await post(url, route, JSON.stringify(body), {
            origin: 'https://evil.example',
            'content-type': 'text/plain',
          }),
        ).toMatchObject({ status: 403, body: { code: 'csrf_refused' } });
    await enrolled(name, invitation);
  });
});

describe('an approval whose person is no longer entitled when it is dispatched', () => {
  test.each<[string, number, (leaver: Person) => Promise<unknown>]>([
    ['left', 4200, ({ name }) => disablePerson(fleet.owner, { tenant_id, name })],
    ['lost the role', 4200, ({ name }) => setPerson(fleet.owner, { tenant_id, name, roles: ['auditor'] })],
    ['lost the passkey', 4200, ({ credential_id }) => revokePasskeyOf(fleet.owner, credential_id, { last: true })],
    ['lost the group that was needed', LARGE, ({ name }) => setPerson(fleet.owner, { tenant_id, name, groups: [] })],
  ])(
    'does not count: one who %s; the run waits again, and another’s signature completes it, once',
    async (what, amount, leave) => {
      const leaver = await person(`who ${what}`, ['approver'], ['finance']);
      const asked = await waiting(amount);
      const { run_id, run } = asked;
      await onHold(async () => {
        expect((await approve(leaver.at[0], run)).body.result).toBe('recorded');
        if (amount === LARGE) expect((await approve(ben.at[0], run)).body.result).toBe('recorded');
        expect((await fleet.requester.getRun(run_id)).decisions_sufficient).toBe(true);
        await leave(leaver);
      });
      const again = await fleet.until(run_id, (seen) => !seen.decisions_sufficient);
      expect([again.state, again.attempts, await fleet.ledger(asked.payment_id)]).toEqual([
        'awaiting_approval',
        [],
        [],
      ]);
      expect((await fleet.requester.runEvents(run_id)).events.at(-1)?.trigger).toBe('decision_voided');
      expect((await approve(finance[1].at[1], run)).body.result).toBe('recorded');
      await expectOnce(asked);
    },
  );
});

describe('a vote that does not count', () => {
  test('is given again with a new passkey, by the same person', async () => {
    const eve = await person('eve', ['approver']);
    const asked = await waiting();
    await onHold(async () => {
      expect((await approve(eve.at[0], asked.run)).body.result).toBe('recorded');
      await revokePasskeyOf(fleet.owner, eve.credential_id, { last: true });
    });
    await fleet.until(asked.run_id, (seen) => !seen.decisions_sufficient);
    const invitation = await invitePerson(fleet.owner, testIds, { tenant_id, name: 'eve', expiresInMs: 60_000 });
    if (invitation.kind === 'refused') throw new Error(invitation.code);
    const again = await enrolled('eve', invitation.token);
    expect((await approve(again.at[1], asked.run)).body.result).toBe('recorded');
    const run = await expectOnce(asked);
    expect(run.approval?.decisions.map(({ principal_id, obstacle }) => [principal_id, obstacle])).toEqual([
      [eve.principal_id, 'credential_revoked'],
      [eve.principal_id, null],
    ]);
  });

  test('is given again once its person is of the group that was missing; until then the same again changes nothing', async () => {
    const [hugo, ham] = await Promise.all([person('hugo', ['approver']), person('ham', ['approver'])]);
    const asked = await waiting(LARGE);
    for (const one of [hugo, ham]) expect((await approve(one.at[0], asked.run)).body.result).toBe('recorded');
    expect((await approve(ham.at[1], asked.run)).body.result).toBe('repeated');
    await setPerson(fleet.owner, { tenant_id, name: 'ham', groups: ['finance'] });
    expect((await approve(ham.at[0], asked.run)).body.result).toBe('recorded');
    await expectOnce(asked);
  });
});

describe('a broken glass', () => {
  test('opens by two holders with a reason of each, without finance; by one alone or by a key it stays shut; each stroke is an alarm', async () => {
    const holders = [
      await person('gil', ['approver', 'break_glass']),
      await person('gus', ['approver', 'break_glass']),
    ] as const;
    const asked = await waiting(LARGE);
    const { run_id, run } = asked;
    const body = { ...shown(run), decision: 'approve', break_glass: true, reason: 'the warehouse burns' };
    const byKey = await post(urls[1], `/v1/runs/${run_id}/decisions`, JSON.stringify(body), {
      ...{ authorization: `Bearer ${fleet.keys.approver}`, 'content-type': 'application/json' },
    });
    expect(byKey).toMatchObject({ status: 403, body: { code: 'approvals_need_development' } });
    await expectUntouched(asked);

    expect((await breakGlass(holders[0].at[0], run, 'the warehouse burns')).body.result).toBe('recorded');
    const twice = await breakGlass(holders[0].at[1], run, 'it still burns');
    expect(twice.body.result).toBe('repeated');
    const alone = await fleet.requester.getRun(run_id);
    expect([alone.state, alone.decisions_sufficient, alone.attempts]).toEqual(['awaiting_approval', false, []]);

    expect((await breakGlass(holders[1].at[1], run, 'I see it too')).body.result).toBe('recorded');
    const done = await expectOnce(asked);
    expect(done.approval?.decisions.map((one) => [one.principal_id, one.break_glass, one.reason])).toEqual([
      [holders[0].principal_id, true, 'the warehouse burns'],
      [holders[1].principal_id, true, 'I see it too'],
    ]);
    const alarms = (await auditsOf(run_id)).filter(({ what }) => what === 'alarm');
    expect(alarms).toEqual(holders.map(({ principal_id }) => ({ what: 'alarm', code: 'break_glass', principal_id })));
  });
});
