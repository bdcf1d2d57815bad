import { createClient, Passkeys, type RunView } from '@counterstamp/api-contract';
import { canonicalJson, digestOf, type RunId, uuidOfRunId } from '@counterstamp/manifest-core';
import { createApiKey, type PrincipalRole } from '@counterstamp/manifest-store';
import { certifyCredential, generateSigningKey, parseSigningKey } from '@counterstamp/signatures';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createBrowser, signedIn } from '../testing/browser.ts';
import { type Fleet, poll } from '../testing/fleet.ts';
import { testFleet } from '../testing/test-fleet.ts';
import { testIds } from '../testing/test-ids.ts';

const TENANT = 'shop_north';

/** A run with its approval, as somebody who owns the database finds it. */
interface Standing {
  run_id: RunId;
  uuid: string;
  run: RunView;
}

/** What an owner of the database does to it while dispatches are on hold: tables that the product never lets anybody touch. */
type Forgery = (standing: Standing) => Promise<void>;

type Person = Awaited<ReturnType<typeof signedIn>> & { credential_id: string };

describe('somebody who may write every table makes no executor act on what nobody signed', () => {
  let fleet: Fleet;
  let ada: Person;
  let bo: Person;
  let operatorKey: string;

  beforeAll(async () => {
    fleet = await testFleet('postgres', undefined, { COUNTERSTAMP_DEV: '0' });
    ada = await person('ada', ['approver']);
    bo = await person('bo', ['approver']);
    operatorKey = (await createApiKey(fleet.owner, testIds, { tenant_id: TENANT, name: 'olga', role: 'operator' })).key;
  }, 90_000);
  afterAll(() => fleet?.stop(), 30_000);

  async function person(name: string, roles: PrincipalRole[]): Promise<Person> {
    const browser = await signedIn(fleet.owner, fleet.apiUrl, name, roles);
    const { passkeys } = Passkeys.parse((await browser.send('GET', '/v1/passkeys')).body);
    return Object.assign(browser, { credential_id: passkeys[0]?.credential_id ?? '' });
  }

  async function sign(browser: Person, run: RunView): Promise<void> {
    if (run.approval === null) throw new Error('nothing to sign');
    const { approval_id, approval_digest, action_digest, action_revision } = run.approval;
    const shown = { approval_id, approval_digest, action_digest, action_revision, decision: 'approve' };
    const asked = await browser.challenge(run.run_id, { ...shown, credential_id: browser.credential_id });
    const assertion = await browser.sign(asked.body);
    const decided = await browser.decide(run.run_id, { ...shown, assertion });
    if (decided.status !== 200) throw new Error(`not decided: ${JSON.stringify(decided.body)}`);
  }

  /** A run that waits for its approval, and is approved unless told otherwise. */
  async function standing(seeded: Awaited<ReturnType<Fleet['seed']>>, isApproved = true): Promise<Standing> {
    const run_id = await fleet.request(seeded);
    let run = await fleet.until(run_id, ['awaiting_approval']);
    if (isApproved) await sign(ada, run);
    run = await fleet.requester.getRun(run_id);
    return { run_id, uuid: uuidOfRunId(run_id), run };
  }

  /** Waits until an executor has met the hold: what is forged now it will load. */
  async function deferred({ uuid, run }: Standing): Promise<void> {
    await poll(
      async () => {
        const [row] = await fleet.owner<{ moved: boolean }[]>`
          select wake_at < committed_at + interval '2900 milliseconds' and revision = ${run.revision} as moved from cs.run where run_id = ${uuid}::uuid`;
        return row?.moved === true;
      },
      10_000,
      'no executor met the hold',
    );
  }

  /** Triggers that keep history as it was stop no owner: they can be switched off. */
  async function asOwner(tables: readonly string[], work: (tx: Fleet['owner']) => Promise<unknown>): Promise<void> {
    const { owner } = fleet;
    for (const table of tables) await owner.unsafe(`alter table cs.${table} disable trigger user`);
    try {
      await work(owner);
    } finally {
      for (const table of tables) await owner.unsafe(`alter table cs.${table} enable trigger user`);
    }
  }

  /** An approval that is part of a history in perfect order, because the owner may call the function that writes it. */
  async function insertApproval(
    { uuid, run }: Standing,
    by: string,
    signed?: { credential_id: string; pre_image: string; client_data_json: Buffer; data: Buffer; signature: Buffer },
    method = 'passkey',
  ): Promise<void> {
    const { owner } = fleet;
    const { approval } = run;
    if (approval === null) throw new Error('nothing asked');
    const decision_id = testIds.id('decision');
    await owner`
      insert into cs.decision (decision_id, approval_id, run_id, revision, decision, principal_id, method, action_digest, action_revision, approval_digest, decided_at, reason)
      values (${decision_id}, ${approval.approval_id}, ${uuid}::uuid, ${run.revision + 1}, 'approve', ${by}, ${method}, ${approval.action_digest}, ${approval.action_revision},
        ${approval.approval_digest}, cs.clock(), null)`;
    if (signed !== undefined) {
      const { credential_id, pre_image, client_data_json, data, signature } = signed;
      await owner`insert into cs.decision_assertion values (${decision_id}, ${credential_id}, ${pre_image}, ${client_data_json}, ${data}, ${signature})`;
    }
    const refs = { decision_id, approval_digest: approval.approval_digest };
    await owner`
      select cs.apply_transition(r, 'api', 'decision_recorded', 'awaiting_approval', ${`principal/${by}`}, '{"decisions_sufficient": true}'::jsonb,
        ${JSON.stringify(refs)}::text::jsonb, cs.clock(), cs.clock()) from cs.run r where r.run_id = ${uuid}::uuid`;
  }

  const FORGERIES: readonly [what: string, isApproved: boolean, code: string, forge: Forgery][] = [
    [
      'changed action bytes',
      true,
      'digest_mismatch',
      async ({ uuid, run }) => {
        const canonical = canonicalJson({ ...run.action?.fields, amount_minor: 4199 });
        await asOwner(
          ['action'],
          (tx) =>
            tx`update cs.action set action_canonical = ${canonical}, action = ${canonical}::text::jsonb, action_digest = ${digestOf('cs.action.v1', canonical)} where run_id = ${uuid}::uuid`,
        );
      },
    ],
    [
      'changed digest of the action in the approval request',
      true,
      'digest_mismatch',
      ({ uuid }) =>
        asOwner(
          ['approval_request'],
          (tx) =>
            tx`update cs.approval_request set action_digest = ${digestOf('cs.action.v1', 'another')} where run_id = ${uuid}::uuid`,
        ),
    ],
    [
      'approval row inserted',
      false,
      'approval_forged',
      async ({ uuid, run }) => {
        const { approval } = run;
        await fleet.owner`
          insert into cs.decision (decision_id, approval_id, run_id, revision, decision, principal_id, method, action_digest, action_revision, approval_digest, decided_at)
          select ${testIds.id('decision')}, approval_id, run_id, ${run.revision}, 'approve', ${ada.principal_id}, 'passkey', action_digest, action_revision, approval_digest, cs.clock()
            from cs.approval_request where approval_id = ${approval?.approval_id ?? ''}`;
        await fleet.owner`update cs.run set decisions_sufficient = true, wake_at = cs.clock() where run_id = ${uuid}::uuid`;
      },
    ],
    [
      'approval inserted with a history in order, unsigned',
      false,
      'approval_forged',
      (found) => insertApproval(found, ada.principal_id),
    ],
    [
      'approval signed by a passkey that the owner certified with a key of their own',
      false,
      'approval_forged',
      async (found) => {
        const { run } = found;
        const mine = createBrowser(fleet.apiUrl);
        const registered = await mine.authenticator.register({
          challenge: 'AAAA',
          rp: { id: 'approve.example.com', name: 'x' },
          user: { id: 'AAAA', name: 'ada', displayName: 'ada' },
          pubKeyCredParams: [{ type: 'public-key', alg: -7 }],
        });
        const [real] = await fleet.owner<{ certificate: { payload: string } }[]>`
          select certificate from cs.passkey where principal_id = ${ada.principal_id} limit 1`;
        const record = JSON.parse(Buffer.from(real?.certificate.payload ?? '', 'base64').toString('utf8'));
        const own = parseSigningKey(generateSigningKey());
        const certificate = certifyCredential({ ...record, credential_id: registered.id }, own);
        await fleet.owner`
          insert into cs.passkey (credential_id, tenant_id, principal_id, public_key, transports, name, backed_up, certificate, created_at)
          values (${registered.id}, ${TENANT}, ${ada.principal_id}, ${record.public_key}, '{}', 'x', false, ${JSON.stringify(certificate)}::text::jsonb, cs.clock())`;
        const pre_image = canonicalJson({ approval_id: run.approval?.approval_id ?? '' });
        const bytes = Buffer.from('{}');
        await insertApproval(found, ada.principal_id, {
          credential_id: registered.id,
          pre_image,
          client_data_json: bytes,
          data: bytes,
          signature: bytes,
        });
      },
    ],
    [
      'approver swapped',
      true,
      'approval_forged',
      ({ uuid }) =>
        asOwner(
          ['decision'],
          (tx) => tx`update cs.decision set principal_id = ${bo.principal_id} where run_id = ${uuid}::uuid`,
        ),
    ],
    [
      'expiry moved',
      true,
      'approval_invalid',
      ({ uuid }) =>
        asOwner(
          ['approval_request'],
          (tx) =>
            tx`update cs.approval_request set expires_at = expires_at + interval '10 seconds' where run_id = ${uuid}::uuid`,
        ),
    ],
    [
      'expiry moved, with every digest that the owner can make again',
      true,
      'approval_forged',
      async ({ uuid, run }) => {
        const bound = JSON.parse(run.approval?.canonical ?? '{}') as Record<string, string>;
        const moved = new Date(Date.parse(bound.expires_at ?? '') + 1_000).toISOString();
        const canonical = canonicalJson({ ...bound, expires_at: moved });
        const digest = digestOf('cs.approval.v1', canonical);
        await asOwner(['approval_request', 'decision'], async (tx) => {
          await tx`update cs.approval_request set canonical = ${canonical}, approval_digest = ${digest}, expires_at = ${moved}::timestamptz where run_id = ${uuid}::uuid`;
          await tx`update cs.decision set approval_digest = ${digest} where run_id = ${uuid}::uuid`;
        });
      },
    ],
    [
      'signature swapped for one of another decision of the same person',
      true,
      'approval_forged',
      ({ uuid }) =>
        asOwner(
          ['decision_assertion'],
          (tx) => tx`
            update cs.decision_assertion set signature = (select o.signature from cs.decision_assertion o join cs.decision d using (decision_id)
                where d.principal_id = ${ada.principal_id} and d.run_id <> ${uuid}::uuid limit 1)
             where decision_id in (select decision_id from cs.decision where run_id = ${uuid}::uuid)`,
        ),
    ],
    [
      'evidence changed',
      true,
      'evidence_altered',
      ({ uuid }) =>
        asOwner(
          ['evidence_value'],
          (tx) => tx`
            update cs.evidence_value v set sealed = null, salt = '00', facts_canonical = '{"status":"open"}'
              from cs.evidence e where e.evidence_id = v.evidence_id and e.run_id = ${uuid}::uuid and e.kind = 'order_record'`,
        ),
    ],
  ];

  test.each(FORGERIES)(
    '%s: nothing is sent, the run stops with a code that names it, and an alarm is raised',
    async (_, isApproved, code, forge) => {
      const operator = createClient({ baseUrl: fleet.apiUrl, key: operatorKey, fetch });
      const seeded = await fleet.seed();
      await operator.setHold('all', { reason: 'an owner is at work' });
      const found = await standing(seeded, isApproved);
      if (isApproved) await deferred(found);
      await forge(found);
      await operator.releaseHold('all');
      await fleet.owner`update cs.run set wake_at = cs.clock() where run_id = ${found.uuid}::uuid and wake_at is not null`;
      const run = await fleet.until(found.run_id, ['failed', 'completed', 'expired', 'rejected']);
      expect(run).toMatchObject({ state: 'failed', stop_reason: { code } });
      expect(await fleet.ledger(seeded.payment_id)).toEqual([]);
      const alarms = await fleet.owner<{ code: string }[]>`
      select code from cs.audit_event where run_id = ${found.uuid}::uuid and what = 'alarm'`;
      expect(alarms.map((alarm) => alarm.code)).toContain(code);
    },
  );

  test('what nobody touched is performed once, outside development, by the signature alone', async () => {
    const seeded = await fleet.seed();
    const { run_id } = await standing(seeded);
    const run = await fleet.until(run_id, ['completed']);
    expect(run.approval?.decisions).toMatchObject([{ method: 'passkey', principal_id: ada.principal_id }]);
    expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
  });
});
