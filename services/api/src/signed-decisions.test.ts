import type { HotRow, JsonObject, RunId } from '@counterstamp/manifest-core';
import { createIdentityStore, disablePerson, StoreUnavailable } from '@counterstamp/manifest-store';
import { createApiStore } from '@counterstamp/manifest-store/api';
import { verifySignedDecision } from '@counterstamp/signatures';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Browser, type BrowserReply, createBrowser, signedIn } from '../../../testing/browser.ts';
import { settableClock } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';
import { STEP_UP_MS } from './sessions.ts';

type Person = Browser & { principal_id: string };

let fixture: ApiFixture;
let api: RunningApi;
let second: RunningApi;
let clock: Awaited<ReturnType<typeof settableClock>>;
let ana: Person;
let ben: Person;
beforeAll(async () => {
  fixture = await apiFixture();
  // Keys never decide here: outside development.
  api = await fixture.start({ development: false });
  second = await fixture.start({ development: false });
  ana = await signedIn(fixture.store.owner, api.url, 'ana', ['approver', 'break_glass']);
  ben = await signedIn(fixture.store.owner, api.url, 'ben', ['approver', 'break_glass']);
});
afterAll(() => fixture.close());

/** What the page shows of a waiting approval, as a decision repeats it. */
interface Shown {
  run_id: RunId;
  shown: { approval_id: string; approval_digest: string; action_digest: string; action_revision: number };
}

async function waiting(bound: JsonObject = { method: 'passkey' }, more: WaitingChange = {}): Promise<Shown> {
  const { approvals, lifeMs, ...change } = more;
  const row = await fixture.store.toAwaitingApproval(change, {
    bound,
    ...(approvals === undefined ? {} : { approvals }),
    ...(lifeMs === undefined ? {} : { lifeMs }),
  });
  return await shownOf(row);
}
type WaitingChange = { approvals?: number; lifeMs?: number; on_behalf_of?: string };

async function shownOf({ run_id }: Pick<HotRow, 'run_id'>): Promise<Shown> {
  const loaded = await fixture.store.stores.preflight.load(run_id);
  const approval = loaded?.manifest.approval;
  if (!approval) throw new Error('nothing waits');
  const { approval_id, approval_digest, action_digest, action_revision } = approval;
  return { run_id, shown: { approval_id, approval_digest, action_digest, action_revision } };
}

async function signed(person: Browser, { run_id, shown }: Shown, decision = 'approve', reason?: string) {
  const asked = await person.challenge(run_id, {
    ...shown,
    decision,
    ...(reason === undefined ? {} : { reason }),
  });
  if (asked.status !== 200) throw new Error(`no challenge: ${asked.body.code} ${asked.body.detail}`);
  return await person.sign(asked.body);
}

async function approve(person: Browser, run: Shown): Promise<BrowserReply> {
  return await person.decide(run.run_id, { ...run.shown, decision: 'approve', assertion: await signed(person, run) });
}

async function breakGlass(person: Browser, run: Shown, reason: string): Promise<BrowserReply> {
  const assertion = await signed(person, run, 'break_glass', reason);
  return await person.decide(run.run_id, {
    ...run.shown,
    ...{ decision: 'approve', break_glass: true, reason, assertion },
  });
}

async function decisions(run_id: RunId): Promise<{ principal_id: string; method: string }[]> {
  return await fixture.store
    .owner`select principal_id, method from cs.decision where run_id = ${run_id.slice(4)}::uuid order by decided_at`;
}

describe('a signed approval', () => {
  test('is recorded with the bytes that were signed, which verify from what is stored, and dispatches', async () => {
    const run = await waiting();
    const reply = await approve(ana, run);
    expect(reply).toMatchObject({
      status: 200,
      body: { result: 'recorded', decision: { principal_id: ana.principal_id, method: 'passkey' } },
    });

    const loaded = await fixture.store.stores.executor.load(run.run_id);
    const [decision] = loaded?.manifest.approval?.decisions ?? [];
    if (!decision?.assertion) throw new Error('no assertion was stored');
    const { certificate, ...stored } = decision.assertion;
    const verdict = await verifySignedDecision(
      stored,
      certificate,
      {
        approval_id: run.shown.approval_id,
        decision: 'approve',
        approver: ana.principal_id,
        tenant_id: 'shop_north',
        approval_digest: run.shown.approval_digest,
        decided_at: decision.decided_at,
        reason: decision.reason,
      },
      fixture.signIn,
    );
    expect(verdict).toMatchObject({ ok: true });
    const row = await fixture.row(run.run_id);
    expect(row.decisions_sufficient).toBe(true);
    expect(await fixture.store.dispatch(row, { countDevKeys: false })).toMatchObject({ kind: 'committed' });
  });

  test('sent again is the same decision, and a second signature changes nothing', async () => {
    const run = await waiting({ method: 'passkey' }, { approvals: 2 });
    const body = { ...run.shown, decision: 'approve', assertion: await signed(ana, run) };
    const other = { ...run.shown, decision: 'approve', assertion: await signed(ana, run) };
    expect((await ana.decide(run.run_id, body)).body.result).toBe('recorded');
    expect((await ana.decide(run.run_id, body)).body.result).toBe('repeated');
    expect((await ana.decide(run.run_id, other)).body.result).toBe('repeated');
    expect(await decisions(run.run_id)).toHaveLength(1);
  });

  test('over a challenge that was used up, or that we never gave, is refused', async () => {
    const run = await waiting();
    const assertion = await signed(ana, run);
    await fixture.store
      .owner`update cs.challenge set consumed_at = cs.clock() where subject ->> 'pre_image' = ${assertion.pre_image}`;
    const reply = await ana.decide(run.run_id, { ...run.shown, decision: 'approve', assertion });
    expect(reply).toMatchObject({ status: 409, body: { code: 'challenge_invalid' } });

    const unknown = await signed(ana, run);
    await fixture.store.owner`delete from cs.challenge where subject ->> 'pre_image' = ${unknown.pre_image}`;
    const body = { ...run.shown, decision: 'approve', assertion: unknown };
    expect((await ana.decide(run.run_id, body)).body.code).toBe('challenge_invalid');
    expect(await decisions(run.run_id)).toEqual([]);
  });

  test('counts for its own approval, person and decision only', async () => {
    const [run, other] = [await waiting(), await waiting()];
    const assertion = await signed(ana, run);
    const elsewhere = await ana.decide(other.run_id, { ...other.shown, decision: 'approve', assertion });
    expect(elsewhere.body).toMatchObject({ code: 'challenge_invalid', path: '/assertion' });
    const byBen = await ben.decide(run.run_id, { ...run.shown, decision: 'approve', assertion });
    expect(byBen.body).toMatchObject({ code: 'credential_revoked' });
    const reversed = await ana.decide(run.run_id, { ...run.shown, decision: 'reject', assertion });
    expect(reversed.body.code).toBe('challenge_invalid');
    // Ben's passkey, over what was asked of Ana.
    const asked = await ana.challenge(run.run_id, { ...run.shown, decision: 'approve' });
    const { allowCredentials: _, ...anybody } = asked.body.options;
    const forged = await ben.sign({ ...asked.body, options: anybody });
    expect((await ben.decide(run.run_id, { ...run.shown, decision: 'approve', assertion: forged })).body.code).toBe(
      'challenge_invalid',
    );
    expect(await decisions(run.run_id)).toEqual([]);
    expect(await decisions(other.run_id)).toEqual([]);
  });

  test.each([
    ['at another origin', { origin: 'https://approve.example.org' }, 'origin_differs'],
    ['without verifying the person', { userVerified: false }, 'user_not_verified'],
    ['in a frame of another site', { crossOrigin: true }, 'origin_differs'],
    ['as a registration', { type: 'webauthn.create' }, 'assertion_invalid'],
  ])('made %s is refused, and the refusal is in the audit', async (_, misbehaviour, fault) => {
    const run = await waiting();
    const asked = await ana.challenge(run.run_id, { ...run.shown, decision: 'approve' });
    const assertion = await ana.sign(asked.body, misbehaviour);
    const reply = await ana.decide(run.run_id, { ...run.shown, decision: 'approve', assertion });
    expect(reply).toMatchObject({ status: 403, body: { code: 'assertion_invalid' } });
    expect(reply.body.detail).toContain(fault);
    expect(await fixture.audits()).toContainEqual(
      expect.objectContaining({ what: 'decide', code: 'assertion_invalid', run_id: run.run_id.slice(4) }),
    );
    expect(await decisions(run.run_id)).toEqual([]);
  });

  test('with one bit of its signature changed is refused', async () => {
    const run = await waiting();
    const assertion = await signed(ana, run);
    const bytes = Buffer.from(assertion.response.response.signature, 'base64url');
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
    assertion.response.response.signature = bytes.toString('base64url');
    const reply = await ana.decide(run.run_id, { ...run.shown, decision: 'approve', assertion });
    expect(reply.body.code).toBe('assertion_invalid');
  });

  test('by a passkey that was revoked meanwhile is refused, and by the other one it counts', async () => {
    const person = await signedIn(fixture.store.owner, api.url, 'two_keys', ['approver']);
    const asked = await person.send('POST', '/v1/passkeys/options');
    const response = await person.authenticator.register(asked.body.options);
    const added = await person.send('POST', '/v1/passkeys', { name: 'spare', response });
    expect(added).toMatchObject({ status: 201, body: { passkeys: [{ name: 'a key' }, { name: 'spare' }] } });
    const [first, spare] = added.body.passkeys.map((passkey) => passkey.credential_id);

    const run = await waiting();
    const challenge = (credential_id: string | undefined) =>
      person.challenge(run.run_id, { ...run.shown, decision: 'approve', credential_id });
    const assertion = await person.sign((await challenge(first)).body);
    expect((await person.send('DELETE', `/v1/passkeys/${first}`)).status).toBe(200);
    const refused = await person.decide(run.run_id, { ...run.shown, decision: 'approve', assertion });
    expect(refused.body.code).toBe('credential_revoked');
    expect((await challenge(first)).body.code).toBe('credential_revoked');
    const bySpare = await person.sign((await challenge(spare)).body);
    const reply = await person.decide(run.run_id, { ...run.shown, decision: 'approve', assertion: bySpare });
    expect(reply.body.result).toBe('recorded');
  });

  test('does not help who is in the request chain: the person acted for, and the owner of the agent', async () => {
    const beneficiary = await signedIn(fixture.store.owner, api.url, 'beneficiary', ['approver']);
    await fixture.store.principal('requester');
    const owner = await signedIn(fixture.store.owner, api.url, 'owner', ['approver'], { owner_of: ['requester'] });
    const run = await waiting({ method: 'passkey' }, { on_behalf_of: beneficiary.principal_id });
    expect((await approve(beneficiary, run)).body).toMatchObject({ code: 'self_approval', path: '/decision' });
    expect((await approve(owner, run)).body.code).toBe('self_approval');
    expect((await approve(ana, run)).body.result).toBe('recorded');
  });
});

describe('a challenge for a decision', () => {
  test('is given for what waits as it was shown, and to who could decide it', async () => {
    const run = await waiting();
    const ask = (change: Record<string, unknown>, who: Browser = ana, run_id: RunId = run.run_id) =>
      who.challenge(run_id, { ...run.shown, decision: 'approve', ...change });
    const digest = `sha256:${'0'.repeat(64)}`;
    expect((await ask({ action_digest: digest })).body.code).toBe('digest_mismatch');
    expect((await ask({ approval_digest: digest })).body.code).toBe('digest_mismatch');
    expect((await ask({ approval_id: 'apr_other' })).body.code).toBe('digest_mismatch');
    expect((await ask({}, ana, `run_${crypto.randomUUID()}` as RunId)).body.code).toBe('run_not_found');
    expect((await ask({ reason: 'because' })).body).toMatchObject({ code: 'unknown_member', path: '/reason' });
    expect((await ask({ decision: 'break_glass' })).body).toMatchObject({ code: 'member_missing', path: '/reason' });
    expect((await ask({ decision: 'break_glass', reason: 'fire' })).body.code).toBe('break_glass_not_allowed');
    const auditor = await signedIn(fixture.store.owner, api.url, 'auditor_only', ['auditor']);
    expect((await ask({}, auditor)).body.code).toBe('not_an_approver');
    const abroad = await signedIn(fixture.store.owner, api.url, 'abroad', ['approver'], { tenant: 'shop_south' });
    expect((await ask({}, abroad)).body.code).toBe('run_not_found');
    await approve(ana, run);
    await fixture.store.dispatch(await fixture.row(run.run_id), { countDevKeys: false });
    expect((await ask({})).body).toMatchObject({ code: 'already_decided', decisions: [{ decision: 'approve' }] });
  });

  test('never outlives the approval', async () => {
    const run = await waiting({ method: 'passkey' }, { lifeMs: 30_000 });
    const asked = await ana.challenge(run.run_id, { ...run.shown, decision: 'approve' });
    const { expires_at } = JSON.parse(asked.body.pre_image) as { expires_at: string };
    const loaded = await fixture.store.stores.preflight.load(run.run_id);
    expect(Date.parse(expires_at)).toBe(Date.parse(loaded?.manifest.approval?.expires_at ?? ''));
    expect(Date.parse(asked.body.expires_at)).toBeLessThanOrEqual(Date.parse(expires_at));
  });
});

describe('without a signature', () => {
  test('an approval counts where the policy asks for no more than a session, and nowhere else', async () => {
    const [plain, strict] = [await waiting({}), await waiting()];
    const decide = (run: Shown) => ana.decide(run.run_id, { ...run.shown, decision: 'approve' });
    expect((await decide(plain)).body).toMatchObject({ result: 'recorded', decision: { method: 'session' } });
    expect(await decide(strict)).toMatchObject({ status: 403, body: { code: 'signature_required' } });
  });

  test('a rejection stops either, even by who wanted the action', async () => {
    const run = await waiting();
    const reply = await ben.decide(run.run_id, { ...run.shown, decision: 'reject', reason: 'wrong order' });
    expect(reply.body).toMatchObject({ result: 'recorded', state: 'rejected' });
  });

  test('a key decides nothing outside development', async () => {
    const run = await waiting({});
    const { key } = await fixture.store.principal('approver');
    const reply = await api.post(`/v1/runs/${run.run_id}/decisions`, key, { ...run.shown, decision: 'approve' });
    expect(reply.body.code).toBe('approvals_need_development');
  });

  test('a key brings no signature, not even in development', async () => {
    const dev = await fixture.start();
    const run = await waiting({});
    const { key } = await fixture.store.principal('approver');
    const body = { ...run.shown, decision: 'approve', assertion: await signed(ana, run) };
    expect((await dev.post(`/v1/runs/${run.run_id}/decisions`, key, body)).body.code).toBe('session_required');
  });
});

describe('breaking the glass', () => {
  const bound = { method: 'passkey', break_glass: true };

  test('takes two people, a reason of each, and raises an alarm each time', async () => {
    const run = await waiting(bound, { approvals: 3 });
    const first = await breakGlass(ana, run, 'the warehouse burns');
    expect(first.body).toMatchObject({ result: 'recorded', decision: { break_glass: true } });
    expect((await fixture.row(run.run_id)).decisions_sufficient).toBe(false);
    expect((await breakGlass(ben, run, 'I see it too')).body.result).toBe('recorded');
    const row = await fixture.row(run.run_id);
    expect(row.decisions_sufficient).toBe(true);
    const alarms = (await fixture.audits()).filter((event) => event.run_id === run.run_id.slice(4));
    expect(alarms.filter((event) => event.what === 'alarm' && event.code === 'break_glass')).toMatchObject([
      { principal_id: ana.principal_id, detail: { reason: 'the warehouse burns' } },
      { principal_id: ben.principal_id, detail: { reason: 'I see it too' } },
    ]);
    expect(await fixture.store.dispatch(row, { countDevKeys: false })).toMatchObject({ kind: 'committed' });
  });

  test('binds the reason: another one than was signed is refused', async () => {
    const run = await waiting(bound);
    const assertion = await signed(ana, run, 'break_glass', 'fire');
    const body = { ...run.shown, decision: 'approve', break_glass: true, assertion };
    expect((await ana.decide(run.run_id, { ...body, reason: 'flood' })).body).toMatchObject({
      ...{ code: 'challenge_invalid', path: '/reason' },
    });
    expect((await ana.decide(run.run_id, body)).body).toMatchObject({ code: 'member_missing', path: '/reason' });
    const { assertion: _, ...unsigned } = body;
    expect((await ana.decide(run.run_id, { ...unsigned, reason: 'fire' })).body.code).toBe('signature_required');
    const plain = { ...run.shown, decision: 'approve', assertion };
    expect((await ana.decide(run.run_id, plain)).body.code).toBe('challenge_invalid');
    expect(await decisions(run.run_id)).toEqual([]);
  });

  test('is refused to who may only approve, and where the policy has no glass', async () => {
    const plain = await signedIn(fixture.store.owner, api.url, 'plain', ['approver']);
    const run = await waiting(bound);
    const asked = await plain.challenge(run.run_id, { ...run.shown, decision: 'break_glass', reason: 'fire' });
    expect(asked.body.code).toBe('not_an_approver');
    const without = await waiting();
    const refused = await ana.challenge(without.run_id, { ...without.shown, decision: 'break_glass', reason: 'fire' });
    expect(refused.body.code).toBe('break_glass_not_allowed');
  });
});

describe('over two api processes', () => {
  test('of 20 people who approve at once every one is recorded once', async () => {
    const people = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        signedIn(fixture.store.owner, n % 2 === 0 ? api.url : second.url, `crowd_${n}`, ['approver']),
      ),
    );
    const run = await waiting({ method: 'passkey' }, { approvals: 20 });
    const assertions = await Promise.all(people.map((person) => signed(person, run)));
    const replies = await Promise.all(
      // Each of them clicks twice.
      [...people, ...people].map((person, n) =>
        person.decide(run.run_id, { ...run.shown, decision: 'approve', assertion: assertions[n % 20] }),
      ),
    );
    expect(replies.map((reply) => reply.body.result).sort()).toEqual([
      ...Array.from({ length: 20 }, () => 'recorded'),
      ...Array.from({ length: 20 }, () => 'repeated'),
    ]);
    const recorded = await decisions(run.run_id);
    expect(recorded.map((one) => one.principal_id).sort()).toEqual(people.map((one) => one.principal_id).sort());
    expect((await fixture.row(run.run_id)).decisions_sufficient).toBe(true);
  });

  test('one person who clicks 20 times decides once', async () => {
    const run = await waiting();
    const elsewhere = createBrowser(second.url, ana.authenticator);
    await elsewhere.signIn();
    const assertion = await signed(ana, run);
    const body = { ...run.shown, decision: 'approve', assertion };
    const replies = await Promise.all(
      Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? ana : elsewhere).decide(run.run_id, body)),
    );
    expect(replies.filter((reply) => reply.body.result === 'recorded')).toHaveLength(1);
    expect(await decisions(run.run_id)).toHaveLength(1);
  });

  test('of an approval and a rejection at once one wins, and the other is told which', async () => {
    const elsewhere = createBrowser(second.url, ben.authenticator);
    await elsewhere.signIn();
    for (let round = 0; round < 5; round++) {
      const run = await waiting();
      const assertion = await signed(ana, run);
      const [approved, rejected] = await Promise.all([
        ana.decide(run.run_id, { ...run.shown, decision: 'approve', assertion }),
        elsewhere.decide(run.run_id, { ...run.shown, decision: 'reject' }),
      ]);
      // A rejection that comes second still stops what is approved and not dispatched.
      expect(rejected.body.result).toBe('recorded');
      if (approved.status !== 200) {
        expect(approved).toMatchObject({ status: 409, body: { code: 'already_decided' } });
        expect(approved.body.decisions).toMatchObject([{ decision: 'reject', principal_id: ben.principal_id }]);
      }
      expect((await fixture.row(run.run_id)).state).toBe('rejected');
    }
  });
});

test.each(['the session', 'the passkey', 'the commit'])(
  'while the database does not answer for %s, a decision is answered 503 and nothing is recorded',
  async (what) => {
    const run = await waiting();
    const body = { ...run.shown, decision: 'approve', assertion: await signed(ana, run) };
    const gone = () => Promise.reject(new StoreUnavailable('gone'));
    const { api: apiSql } = fixture.store.serviceSql;
    const away = await fixture.start({
      development: false,
      identities: {
        ...createIdentityStore(apiSql),
        ...(what === 'the session' ? { sessionOf: gone } : {}),
        ...(what === 'the passkey' ? { passkeyFor: gone } : {}),
      },
      store: { ...createApiStore(apiSql), ...(what === 'the commit' ? { decide: gone } : {}) },
    });
    const elsewhere = createBrowser(away.url, ana.authenticator);
    Object.assign(elsewhere, { cookie: ana.cookie, session: ana.session });
    expect(await elsewhere.decide(run.run_id, body)).toMatchObject({
      status: 503,
      body: { code: 'store_unavailable' },
    });
    expect(await decisions(run.run_id)).toEqual([]);
    expect((await ana.decide(run.run_id, body)).body.result).toBe('recorded');
  },
);

describe('in time', () => {
  beforeAll(async () => {
    clock = await settableClock(fixture.store);
  });

  test('a challenge and its approval expire together with nothing recorded, and the late click is told', async () => {
    const run = await waiting({ method: 'passkey' }, { lifeMs: 60_000 });
    const assertion = await signed(ana, run);
    await clock.advanceMs(60_000);
    const late = await ana.decide(run.run_id, { ...run.shown, decision: 'approve', assertion });
    expect(late.body).toMatchObject({ code: 'challenge_invalid' });
    expect(late.body.detail).toContain('decided_outside_window');
    const unsigned = await ana.decide(run.run_id, { ...run.shown, decision: 'reject' });
    expect(unsigned).toMatchObject({ status: 410, body: { code: 'approval_expired' } });
    expect(await decisions(run.run_id)).toEqual([]);
  });

  test('an approval by a session needs a fresh proof, a rejection none', async () => {
    const stale = await signedIn(fixture.store.owner, api.url, 'stale', ['approver']);
    await clock.advanceMs(STEP_UP_MS);
    const fresh = await waiting({});
    const body = (shown: Shown['shown']) => ({ ...shown, decision: 'approve' });
    expect(await stale.decide(fresh.run_id, body(fresh.shown))).toMatchObject({
      ...{ status: 403, body: { code: 'step_up_required' } },
    });
    const other = await waiting({});
    const rejected = await stale.decide(other.run_id, { ...other.shown, decision: 'reject' });
    expect(rejected.body.result).toBe('recorded');
    expect((await stale.stepUp()).status).toBe(200);
    expect((await stale.decide(fresh.run_id, body(fresh.shown))).body.result).toBe('recorded');
  });

  test('who was disabled after approving counts no more', async () => {
    const leaver = await signedIn(fixture.store.owner, api.url, 'leaver', ['approver']);
    const run = await waiting();
    await approve(leaver, run);
    await disablePerson(fixture.store.owner, { tenant_id: 'shop_north', name: 'leaver' });
    expect((await leaver.decide(run.run_id, { ...run.shown, decision: 'reject' })).status).toBe(401);
    const outcome = await fixture.store.dispatch(await fixture.row(run.run_id), { countDevKeys: false });
    expect(outcome).toMatchObject({ kind: 'refused', code: 'decisions_insufficient' });
  });
});
