import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, storeFixture } from '../../../testing/store-fixture.ts';
import type { Principal } from './principal.ts';
import { GRANTS } from './roles.ts';
import { readWalls } from './walls.ts';

/** Whom a call says it is for, and what it reaches for. */
interface Reach {
  tenant: string;
  principal: string;
  run: string;
  revision: number;
  approval: string;
  approval_digest: string;
  action_digest: string;
  action_revision: number;
  supersedes: string;
  on_behalf_of: string;
  session: string;
  credential: string;
  challenge: string;
  invitation: string;
}

interface Row {
  /** What in the body of the function keeps tenants apart. */
  checks: string;
  /** Absent: the function names neither a tenant nor anything of one. */
  call?: (reach: Reach) => string;
  /** The function takes no principal: whoever calls it for a tenant is checked before. */
  anonymous?: true;
}

const decision = (reach: Reach, choice: string) => ({
  approval_id: reach.approval,
  decision_id: 'dec_x',
  decision: choice,
  method: 'dev_key',
  approval_digest: reach.approval_digest,
  action_digest: reach.action_digest,
  action_revision: reach.action_revision,
});
const quoted = (value: string | null) => (value === null ? 'null' : `'${value.replaceAll("'", "''")}'`);
const jsonb = (value: unknown) => `${quoted(JSON.stringify(value))}::jsonb`;
const who = ({ tenant, principal }: Reach) => `${quoted(tenant)}, ${quoted(principal)}`;

/** One row for each function that the api's login may call. */
const CALLS: Readonly<Record<string, Row>> = {
  create_run: {
    checks: 'principal, on_behalf_of and the superseded run are of the tenant; request ids are the tenant’s own',
    call: (reach) =>
      `select result from cs.create_run(${who(reach)}, ${jsonb({ run_id: randomUUID(), request_id: 'case_x', supersedes: reach.supersedes, on_behalf_of: reach.on_behalf_of, input_canonical: '{}', context: [], allowed_operations: [], workflow: 'w', workflow_version: 1, connector: 'c', connector_version: '1', proposer: 'rules', run_life_ms: 1, wake_in_ms: 1, body_digest: 'x' })})`,
  },
  commit_stage: {
    checks: 'run and principal are of the tenant, which the api must name',
    call: (reach) =>
      `select * from cs.commit_stage(${who(reach)}, null, ${quoted(reach.run)}, ${reach.revision}, 'awaiting_approval', 'cancelled', 'rejected', '{"stop_reason": {"code": "x", "message": "x"}}', null)`,
  },
  commit_decision: {
    checks: 'run and approver are of the tenant; the approval is of the run',
    call: (reach) =>
      `select result from cs.commit_decision(${who(reach)}, ${quoted(reach.run)}, ${jsonb(decision(reach, 'approve'))}, 1)`,
  },
  decision_wait_ms: {
    checks: 'run is of the tenant',
    call: (reach) => `select cs.decision_wait_ms(${quoted(reach.tenant)}, ${quoted(reach.run)}) is null as unknown`,
  },
  approver_obstacle: {
    checks: 'reads with the login’s own rights, behind row-level security; the run is a row it was shown',
  },
  request_chain: {
    checks: 'reads with the login’s own rights, behind row-level security; the run is a row it was shown',
  },
  commit_verdict: {
    checks: 'run and operator are of the tenant',
    call: (reach) =>
      `select result from cs.commit_verdict(${who(reach)}, ${quoted(reach.run)}, ${reach.revision}, '{"verdict": "look_again"}', 1)`,
  },
  support_verdict: {
    checks: 'run and operator are of the tenant',
    call: (reach) =>
      `select cs.support_verdict(${who(reach)}, ${quoted(reach.run)}, ${reach.revision}, 'waive_fencing', '', 'x')`,
  },
  record_audit: {
    checks: 'the principal is of the tenant; a run of another is left out',
    call: (reach) => `select cs.record_audit(${who(reach)}, ${quoted(reach.run)}, 'x', 'x', '{}')`,
  },
  set_hold: { checks: 'an operator of the tenant', call: (reach) => `select cs.set_hold(${who(reach)}, '*', 'x')` },
  end_instance: {
    checks: 'an operator of the tenant; instances are the installation’s',
    call: (reach) => `select cs.end_instance(${who(reach)}, 'ins_executor', 'x', true, 1)`,
  },
  subject_key_for: {
    checks: 'the principal is of the tenant; a subject’s key is found under its tenant',
    call: (reach) => `select cs.subject_key_for(${who(reach)}, 'customer_1', '\\x01'::bytea)`,
  },
  key_of_run: {
    checks: 'the run is of the tenant, which the api must name',
    anonymous: true,
    call: ({ tenant, run }) => `select * from cs.key_of_run(${quoted(tenant)}, ${quoted(run)})`,
  },
  checkpoint_covering: {
    checks: 'the run is of the tenant',
    anonymous: true,
    call: ({ tenant, run }) => `select cs.checkpoint_covering(${quoted(tenant)}, ${quoted(run)})`,
  },
  begin_challenge: {
    checks: 'a person of the tenant',
    call: (reach) => `select cs.begin_challenge(${who(reach)}, 'step_up', '${randomUUID()}', '{}', 1) is not null`,
  },
  enrol_passkey: {
    checks: 'a person of the tenant; invitation, session and challenge are that person’s',
    call: (reach) =>
      `select cs.enrol_passkey(${who(reach)}, ${quoted(reach.invitation)}, null, ${quoted(`${reach.challenge}_enrol`)}, '{"credential_id": "new", "public_key": "k", "transports": [], "name": "n", "backed_up": false, "certificate": {}}', '{"session_id": "s_new", "secret_hash": "h_new", "life_ms": 1000}')`,
  },
  open_session: {
    checks: 'a person of the tenant; passkey and challenge are that person’s',
    call: (reach) =>
      `select cs.open_session(${who(reach)}, 'passkey', 's_open', 'h_open', 1000, ${quoted(reach.credential)}, ${quoted(`${reach.challenge}_sign_in`)})`,
  },
  step_up: {
    checks: 'a person of the tenant; session, passkey and challenge are that person’s',
    call: (reach) =>
      `select cs.step_up(${who(reach)}, ${quoted(reach.session)}, ${quoted(reach.credential)}, ${quoted(`${reach.challenge}_step_up`)})`,
  },
  close_session: {
    checks: 'the session is that person’s, of the tenant',
    call: (reach) => `select cs.close_session(${who(reach)}, ${quoted(reach.session)})`,
  },
  list_passkeys: {
    checks: 'a person of the tenant, and their own passkeys',
    call: (reach) => `select * from cs.list_passkeys(${who(reach)})`,
  },
  revoke_passkey: {
    checks: 'a person of the tenant, and a passkey of theirs',
    call: (reach) => `select cs.revoke_passkey(${who(reach)}, ${quoted(reach.session)}, ${quoted(reach.credential)})`,
  },
  authenticate: { checks: 'knowing the secret of the key; the tenant is the key’s' },
  session_of: { checks: 'knowing the secret of the session; the tenant is the session’s' },
  invitation_for: { checks: 'knowing the secret of the invitation; the tenant is the invitation’s' },
  passkey_for: { checks: 'nothing: a public key by its public name, for a sign-in that does not know its tenant yet' },
  vouched_person: {
    checks: 'an answer of the identity provider, used once; the tenant is that of the person whom it is linked to',
  },
  instance_beat: { checks: 'the instance is the api’s own; instances are the installation’s' },
  unknown_data_key: { checks: 'names a key of the installation’s configuration, never a subject or its tenant' },
};

let db: StoreFixture;
let tables: string[];
let own: Reach;
let theirs: Reach;
/** Everything that an answer or a row could name of the other tenant. */
let marks: string[];

beforeAll(async () => {
  db = await storeFixture(18);
  tables = (await readWalls(db.owner)).map((table) => table.name);
  own = await stock('shop_north');
  theirs = await stock('shop_south');
  marks = ['shop_south', theirs.principal, theirs.run, theirs.approval, theirs.session, theirs.credential];
});
afterAll(() => db.close());

/** A tenant with a person of every role, a run that awaits approval, a run that may be superseded, and what belongs to sign-in. */
async function stock(tenant: string): Promise<Reach> {
  const person: Principal = await db.principal('approver', 'ada', tenant);
  await db.principal('operator', 'ada', tenant);
  const stopped = await db.createRun({ tenant_id: tenant, request_id: 'case_x' });
  await db.api.commit(person, {
    run_id: stopped.run_id,
    expected: stopped.revision,
    from: 'queued',
    on: 'cancelled',
    to: 'rejected',
    facts: { stop_reason: { code: 'cancelled', message: 'test' } },
    wake_in_ms: null,
  });
  const waiting = await db.toAwaitingApproval({ tenant_id: tenant });
  const loaded = await db.api.load(tenant, waiting.run_id);
  const approval = loaded?.manifest.approval;
  if (approval === null || approval === undefined) throw new Error('no approval');
  const suffix = tenant.slice(5);
  const { principal_id } = person;
  await db.owner.unsafe(`
    insert into cs.session (session_id, secret_hash, tenant_id, principal_id, method, created_at, authenticated_at, last_seen_at, expires_at)
      values ('ses_${suffix}', 'h_${suffix}', '${tenant}', '${principal_id}', 'passkey', now(), now(), now(), now() + interval '1 day');
    insert into cs.passkey (credential_id, tenant_id, principal_id, public_key, transports, name, backed_up, certificate, created_at)
      values ('cred_${suffix}', '${tenant}', '${principal_id}', 'k', '{}', 'n', false, '{}', now()), ('cred2_${suffix}', '${tenant}', '${principal_id}', 'k', '{}', 'n', false, '{}', now());
    insert into cs.challenge (challenge, purpose, principal_id, subject, created_at, expires_at)
      values ('chal_${suffix}_step_up', 'step_up', '${principal_id}', '{"session_id": "ses_${suffix}"}', now(), now() + interval '1 day'),
        ('chal_${suffix}_sign_in', 'sign_in', null, '{}', now(), now() + interval '1 day'),
        ('chal_${suffix}_enrol', 'enrol', '${principal_id}', '{"invitation_id": "inv_${suffix}"}', now(), now() + interval '1 day');
    insert into cs.invitation (invitation_id, tenant_id, principal_id, token_hash, created_at, expires_at)
      values ('inv_${suffix}', '${tenant}', '${principal_id}', 'tok_${suffix}', now(), now() + interval '1 day');
    insert into cs.subject_key (tenant_id, subject, wrapped_key, created_at) values ('${tenant}', 'customer_1', convert_to('${tenant}', 'UTF8'), now())`);
  return {
    tenant,
    principal: principal_id,
    run: waiting.run_id.slice(4),
    revision: waiting.revision,
    approval: approval.approval_id,
    approval_digest: approval.approval_digest,
    action_digest: approval.action_digest,
    action_revision: approval.action_revision,
    supersedes: stopped.run_id.slice(4),
    on_behalf_of: principal_id,
    session: `ses_${suffix}`,
    credential: `cred_${suffix}`,
    challenge: `chal_${suffix}`,
    invitation: `tok_${suffix}`,
  };
}

/** Names that nothing has. */
const unknown = () => ({
  run: randomUUID(),
  approval: 'apr_unknown',
  supersedes: randomUUID(),
  on_behalf_of: 'prn_unknown',
  session: 'ses_unknown',
  credential: 'cred_unknown',
  challenge: 'chal_unknown',
  invitation: 'tok_unknown',
});
const targetsOf = ({ tenant: _tenant, principal: _principal, ...targets }: Reach) => targets;

async function answer(call: string): Promise<string> {
  try {
    return JSON.stringify(await db.serviceSql.api.unsafe(call));
  } catch (error) {
    return error instanceof Error && 'code' in error ? `refused with ${String(error.code)}` : String(error);
  }
}

/** A digest of every row, or of those that name something of the other tenant. What a caller said stands in its own tenant's audit. */
async function state(onlyTheirs: boolean): Promise<Record<string, string | null>> {
  const found: Record<string, string | null> = {};
  for (const table of tables) {
    const row = table === 'audit_event' && onlyTheirs ? `concat_ws(' ', tenant_id, principal_id, run_id)` : 't::text';
    const filter = onlyTheirs ? `where ${row} ~ '${marks.join('|')}'` : '';
    const [digest] = await db.owner.unsafe<{ digest: string | null }[]>(
      `select md5(string_agg(t::text, '' order by t::text)) as digest from cs.${table} t ${filter}`,
    );
    found[table] = digest?.digest ?? null;
  }
  return found;
}

test('every function that the api may call has its row', () => {
  expect(Object.keys(CALLS).sort()).toEqual([...GRANTS.api].sort());
});

const asked = Object.entries(CALLS).flatMap(([name, { call, anonymous, checks }]) =>
  call === undefined ? [] : [{ name, call, anonymous, checks }],
);

describe.each(asked)('$name ($checks)', ({ call }) => {
  test('is not refused to its own', async () => {
    let told: unknown;
    const undone = db.serviceSql.api.begin(async (tx) => {
      told = await tx.unsafe(call(own));
      throw new Error('undo');
    });
    await expect(undone).rejects.toThrow('undo');
    expect(told).toBeDefined();
  });

  test('answers about what is another tenant’s as about what does not exist, and leaves it alone', async () => {
    const before = await state(true);
    const foreign = await answer(call({ ...own, ...targetsOf(theirs) }));
    const nothing = await answer(call({ ...own, ...targetsOf(theirs), ...unknown() }));
    expect(foreign).toBe(nothing);
    for (const mark of marks) expect(foreign).not.toContain(mark);
    expect(await state(true)).toEqual(before);
  });
});

describe.each(asked.filter(({ anonymous }) => anonymous !== true))('$name ($checks)', ({ call }) => {
  test('refuses another tenant’s principal as one that does not exist, and changes nothing', async () => {
    const before = await state(false);
    const foreign = await answer(call({ ...own, principal: theirs.principal }));
    expect(foreign).toBe(await answer(call({ ...own, principal: 'prn_unknown' })));
    expect(await state(false)).toEqual(before);
  });

  test('does nothing for a principal that claims another tenant, or none', async () => {
    const before = await state(false);
    for (const tenant of ['shop_south', null]) {
      const reached = call({ ...theirs, principal: own.principal, tenant: tenant ?? '' });
      await answer(tenant === null ? reached.replace(`''`, 'null') : reached);
    }
    expect(await state(false)).toEqual(before);
  });
});

test('the api moves no run without naming its tenant, not even for a principal of that tenant', async () => {
  const before = await state(false);
  const call = CALLS.commit_stage?.call?.({ ...own, tenant: '' }).replace(`''`, 'null') ?? '';
  expect(await answer(call)).toBe('[]');
  expect(await state(false)).toEqual(before);
});
