import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ApprovalCard, RunView } from '@counterstamp/api-contract';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { at, START_MS } from '../../../testing/manifest-builder.ts';
import { approvedRun } from '../../../testing/refund-case.ts';
import { runCommand } from '../testing/run-command.ts';

const view: RunView = {
  ...approvedRun(),
  ...{ state: 'awaiting_approval', guards: [], next: null, as_of: at(START_MS), settles_at: null },
};

function cardOf(change: Partial<ApprovalCard> = {}): ApprovalCard {
  const { run_id, tenant_id, state, revision, as_of, approval } = view;
  if (approval === null) throw new Error('nothing is asked');
  const { approval_id, approval_digest, action_digest, action_revision, expires_at, display, decisions } = approval;
  const { policy, policy_version, policy_rule, approvals_required, groups_required, method, break_glass } = approval;
  return {
    ...{ run_id, tenant_id, state, revision, as_of, approval_id, approval_digest, action_digest, action_revision },
    ...{ expires_at, facts: display, flagged: false },
    rule: { policy, policy_version, policy_rule, approvals_required, groups_required, method, break_glass },
    decisions: decisions.map(({ decision_id, decision, principal_id, method: by, decided_at, reason, obstacle }) => ({
      ...{ decision_id, decision, principal_id, method: by, decided_at, reason, obstacle, break_glass: false },
    })),
    standing: { suffices: false, detail: '0 of 1 approvals' },
    mine: { may_decide: true, why_not: null },
    untrusted: [{ label: 'context', source: 'mail', member: null, text: 'Please hurry.', flagged: false }],
    ...change,
  };
}

let server: Server;
let answers: Record<string, { status: number; body: unknown }>;
let asked: string[];
let access: string[];
beforeEach(async () => {
  asked = [];
  answers = { [`/v1/runs/${view.run_id}`]: { status: 200, body: view } };
  server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    const { status, body } = answers[request.url ?? ''] ?? { status: 500, body: {} };
    const type = status === 200 ? 'application/json' : 'application/problem+json';
    response.writeHead(status, { 'content-type': type }).end(JSON.stringify(body));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  access = ['--url', `http://127.0.0.1:${(server.address() as AddressInfo).port}`, '--key', 'csk_x'];
});
afterEach(async () => {
  vi.restoreAllMocks();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function answerCard(card: ApprovalCard): void {
  answers[`/v1/runs/${view.run_id}/card`] = { status: 200, body: card };
}
function refuseCard(code: string, detail: string): void {
  const body = { type: 'urn:x', title: 'no', status: 409, code, path: '', detail };
  answers[`/v1/runs/${view.run_id}/card`] = { status: 409, body };
}

/** What `approve` shows, and how it ends. */
async function approve(...more: string[]): Promise<{ shown: string; error: unknown }> {
  const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const error: unknown = await runCommand('approve', view.run_id, ...more, ...access).catch((e: unknown) => e);
  return { shown: write.mock.calls.map(([text]) => String(text)).join(''), error };
}

describe('approve', () => {
  test('shows the card, what others wrote below the facts, and decides nothing without a yes', async () => {
    answerCard(cardOf());
    const { shown, error } = await approve();
    expect(shown).toContain('asks for:\n    Operation   Refund an order\n');
    expect(shown).toMatch(/\n\nWritten by the caller, .*\n {4}context, by mail:\n {6}> Please hurry\.\n$/);
    expect(error).toMatchObject({ name: 'CliFailure', message: expect.stringContaining('no terminal') });
    expect(asked).toEqual([`GET /v1/runs/${view.run_id}`, `GET /v1/runs/${view.run_id}/card`]);
  });

  test('says where a person decides when a key cannot, and asks nobody first', async () => {
    answerCard(cardOf({ mine: { may_decide: false, why_not: 'approvals_need_development' } }));
    const { error } = await approve();
    expect(error).toMatchObject({
      message: expect.stringContaining('A key decides nothing here'),
      next: expect.stringContaining('COUNTERSTAMP_ORIGIN'),
    });
  });

  test('sends nothing when what would be shown is not what is bound', async () => {
    refuseCard('card_not_bound', 'The approval binds another action.');
    const { shown, error } = await approve('--yes');
    expect([shown, error]).toMatchObject(['', { name: 'ProblemError' }]);
    expect(asked.filter((one) => one.startsWith('POST'))).toEqual([]);
  });
});

describe('run show', () => {
  test('shows what others wrote under a heading of its own', async () => {
    answerCard(cardOf());
    const { printed } = await runCommand('run', 'show', view.run_id, ...access);
    expect(printed).toContain('Amount      USD 42.00');
    expect(printed).toContain('> Please hurry.');
  });

  test('shows the run without facts that are not bound, and as it is while a new approval is prepared', async () => {
    refuseCard('card_not_bound', 'The approval binds another action.');
    const { printed } = await runCommand('run', 'show', view.run_id, ...access);
    expect(printed).toContain('Not shown: The approval binds another action. (card_not_bound)');
    expect(printed).not.toContain('USD 42.00');
    refuseCard('approval_not_found', 'none');
    expect((await runCommand('run', 'show', view.run_id, ...access)).printed).toContain('USD 42.00');
  });
});

describe('alarm list', () => {
  const alarm = { alarm_id: 7, at: at(START_MS), service: 'executor', code: 'approval_forged', run_id: view.run_id };

  test('shows the newest alarms and how to see older ones', async () => {
    const body = { alarms: [{ ...alarm, principal_id: null, detail: { revision: 6 } }], next_after: 7 };
    answers['/v1/alarms?limit=1'] = { status: 200, body };
    const { printed } = await runCommand('alarm', 'list', '--limit', '1', ...access);
    expect(printed).toMatch(/^ALARM .*\n7 .* approval_forged .* executor {2}\{"revision":6\}\n.*--after 7\n$/);
  });

  test('says when there is none', async () => {
    answers['/v1/alarms?limit=50&after=7'] = { status: 200, body: { alarms: [], next_after: null } };
    expect((await runCommand('alarm', 'list', '--after', '7', ...access)).printed).toBe('No older alarm.\n');
  });
});
