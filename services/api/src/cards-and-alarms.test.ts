import { ApprovalCard } from '@counterstamp/api-contract';
import type { JsonObject, RunId } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Browser, signedIn } from '../../../testing/browser.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';

type Person = Browser & { principal_id: string };

const alarms: string[] = [];
let fixture: ApiFixture;
let api: RunningApi;
let ana: Person;
let ben: Person;
let operator: string;
beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start({ development: false, alarm: (code) => alarms.push(code) });
  ana = await signedIn(fixture.store.owner, api.url, 'ana', ['approver', 'break_glass']);
  ben = await signedIn(fixture.store.owner, api.url, 'ben', ['approver']);
  operator = (await fixture.store.principal('operator')).key;
});
afterAll(() => fixture.close());

function askForCard(person: Browser, run_id: RunId): ReturnType<Browser['send']> {
  return person.send('GET', `/v1/runs/${run_id}/card`);
}
async function cardFor(person: Browser, run_id: RunId): Promise<ApprovalCard> {
  return ApprovalCard.parse((await askForCard(person, run_id)).body);
}
/** What a decision on the card repeats of it. */
function shownOf({ approval_id, approval_digest, action_digest, action_revision }: ApprovalCard) {
  return { approval_id, approval_digest, action_digest, action_revision };
}

/** Changes rows as whoever owns the database can. */
async function tamper(table: string, change: string, run_id: RunId): Promise<void> {
  const { owner } = fixture.store;
  await owner.unsafe(`alter table cs.${table} disable trigger user`);
  await owner.unsafe(`update cs.${table} set ${change} where run_id = '${run_id.slice(4)}'`);
  await owner.unsafe(`alter table cs.${table} enable trigger user`);
}

async function breakGlass(run_id: RunId, reason: string): Promise<void> {
  const shown = shownOf(await cardFor(ana, run_id));
  const asked = await ana.challenge(run_id, { ...shown, decision: 'break_glass', reason });
  const assertion = await ana.sign(asked.body);
  const decided = { ...shown, decision: 'approve', break_glass: true, reason, assertion };
  for (const result of ['recorded', 'repeated']) {
    expect((await ana.decide(run_id, decided)).body.result).toBe(result);
  }
}

describe('the card', () => {
  test('holds what a decision has to name, and says who may make it', async () => {
    const { run_id } = await fixture.store.toAwaitingApproval({ on_behalf_of: ben.principal_id });
    const card = await cardFor(ana, run_id);
    expect(card).toMatchObject({
      run_id,
      state: 'awaiting_approval',
      facts: [{ label: 'Amount', value: 'USD 42.00', flagged: false }],
      mine: { may_decide: true, why_not: null },
      untrusted: [{ label: 'request', member: 'reason', text: 'item arrived damaged' }],
    });
    expect((await cardFor(ben, run_id)).mine).toEqual({ may_decide: false, why_not: 'self_approval' });
    const { key } = await fixture.store.principal('approver');
    const byKey = await api.client(key).approvalCard(run_id);
    expect(byKey.mine).toEqual({ may_decide: false, why_not: 'approvals_need_development' });

    const decided = await ana.decide(run_id, { ...shownOf(card), decision: 'approve' });
    expect(decided.body.result).toBe('recorded');
    expect(await cardFor(ana, run_id)).toMatchObject({
      decisions: [{ principal_id: ana.principal_id, obstacle: null }],
      standing: { suffices: true },
      mine: { may_decide: false, why_not: 'already_decided' },
    });
  });

  test('tells the owner of the agent that asks, like the agent itself, that they may not approve', async () => {
    await fixture.store.principal('requester');
    const owner = await signedIn(fixture.store.owner, api.url, 'owner', ['approver'], { owner_of: ['requester'] });
    const { run_id } = await fixture.store.toAwaitingApproval();
    expect((await cardFor(owner, run_id)).mine.why_not).toBe('self_approval');
  });

  test('is unknown before an approval was asked for', async () => {
    const { run_id } = await fixture.store.createRun();
    expect(await askForCard(ana, run_id)).toMatchObject({ status: 404, body: { code: 'approval_not_found' } });
  });

  test.each([
    [
      'approval_request',
      `display = '[{"field": "amount_minor", "label": "Amount", "value": "USD 1.00", "flagged": false}]'`,
      'display_digest',
    ],
    ['approval_request', `approvals_required = 2`, 'approvals_required'],
    ['approval_request', `expires_at = expires_at + interval '10 seconds'`, 'expires_at'],
  ])('is refused to everybody once %s was changed: %s', async (table, change, member) => {
    const { run_id } = await fixture.store.toAwaitingApproval();
    await tamper(table, change, run_id);
    const reply = await askForCard(ana, run_id);
    expect(reply).toMatchObject({ status: 409, body: { code: 'card_not_bound' } });
    expect(reply.body.detail).toContain(member);
    expect(api.logged).toContainEqual(
      expect.objectContaining({ level: 'error', fields: { run_id, code: 'card_not_bound', member } }),
    );
  });
});

describe('an alarm', () => {
  const list = async (query = ''): Promise<{ status: number; body: JsonObject }> => {
    const response = await fetch(`${api.url}/v1/alarms${query}`, { headers: { authorization: `Bearer ${operator}` } });
    return { status: response.status, body: (await response.json()) as JsonObject };
  };

  test('of a broken glass is logged and counted once, and listed with the reason that was given', async () => {
    const { run_id } = await fixture.store.toAwaitingApproval({}, { bound: { method: 'passkey', break_glass: true } });
    const before = alarms.length;
    await breakGlass(run_id, 'the warehouse burns');
    expect(alarms.slice(before)).toEqual(['break_glass']);
    expect(api.logged.filter(({ fields }) => fields.code === 'break_glass' && fields.run_id === run_id)).toMatchObject([
      { level: 'error', fields: { principal_id: ana.principal_id } },
    ]);
    const { alarms: found } = await api.client(operator).listAlarms();
    expect(found[0]).toMatchObject({
      ...{ run_id, code: 'break_glass', service: 'api', principal_id: ana.principal_id },
      detail: { reason: 'the warehouse burns' },
    });
  });

  test('that the executor raised is listed for the run’s tenant alone, the newest first, page by page', async () => {
    const { executor } = fixture.store.stores;
    const raised: RunId[] = [];
    for (const tenant_id of ['shop_north', 'shop_south', 'shop_north']) {
      const { run_id } = await fixture.store.createRun({ tenant_id });
      await executor.audit({
        tenant_id,
        principal_id: null,
        run_id,
        what: 'alarm',
        code: 'approval_forged',
        detail: {},
      });
      await executor.audit({ tenant_id, principal_id: null, run_id, what: 'other', code: 'x', detail: {} });
      if (tenant_id === 'shop_north') raised.unshift(run_id);
    }
    const client = api.client(operator);
    const first = await client.listAlarms({ limit: 1 });
    expect(first.alarms).toMatchObject([{ run_id: raised[0], code: 'approval_forged', principal_id: null }]);
    const second = await client.listAlarms({ limit: 1, after: first.next_after ?? 0 });
    expect(second.alarms).toMatchObject([{ run_id: raised[1] }]);
    const south = await fixture.store.principal('auditor', 'auditor', 'shop_south');
    const theirs = await api.client(south.key).listAlarms();
    expect(theirs.alarms).toHaveLength(1);
    expect(theirs.next_after).toBeNull();
  });

  test.each(['?after=0', '?after=x', '?limit=0', '?limit=1001', '?what=audit'])(
    'list refuses the query %s',
    async (query) => {
      expect((await list(query)).status).toBe(400);
    },
  );
});
