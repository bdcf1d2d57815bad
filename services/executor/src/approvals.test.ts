import type { Manifest } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { approvedRun } from '../../../testing/refund-case.ts';
import { verifyDecisions } from './approvals.ts';

type Approval = NonNullable<Manifest['approval']>;
type Decision = Approval['decisions'][number];

/** An approved run whose request asks for `method`, decided by `changes`. */
function runWith(method: Approval['method'], ...changes: Partial<Decision>[]): Manifest {
  const run = approvedRun();
  const [decision] = run.approval?.decisions ?? [];
  if (run.approval === null || decision === undefined) throw new Error('nothing decided');
  const decisions = changes.map((change, n) => ({
    ...decision,
    decision_id: `dec_${n}`,
    principal_id: `prn_${n}`,
    ...change,
  }));
  return { ...run, approval: { ...run.approval, method, decisions } };
}

describe('of recorded approvals', () => {
  test.each<
    [string, Approval['method'], Partial<Decision>, boolean, { verified: number; forged: number; suffices: boolean }]
  >([
    [
      'one by session counts where the request asks for no signature',
      'session',
      { method: 'session' },
      false,
      { verified: 1, forged: 0, suffices: true },
    ],
    [
      'one by session does not count where it asks for one, whatever the database says',
      'passkey',
      { method: 'session', obstacle: null },
      false,
      { verified: 0, forged: 0, suffices: false },
    ],
    [
      'one by key counts in development',
      'passkey',
      { method: 'dev_key' },
      true,
      { verified: 1, forged: 0, suffices: true },
    ],
    [
      'one by key counts nowhere else',
      'session',
      { method: 'dev_key' },
      false,
      { verified: 0, forged: 0, suffices: false },
    ],
    [
      'one by passkey without a signature is forged',
      'passkey',
      { method: 'passkey', assertion: null },
      true,
      { verified: 0, forged: 1, suffices: false },
    ],
    [
      'one that the database holds against is not looked at',
      'session',
      { method: 'session', obstacle: 'disabled' },
      false,
      { verified: 0, forged: 0, suffices: false },
    ],
  ])('%s', async (_, method, change, development, expected) => {
    const { verified, forged, suffices } = await verifyDecisions(runWith(method, change), {
      signatures: undefined,
      development,
    });
    expect({ verified: verified.length, forged: forged.length, suffices }).toEqual(expected);
  });

  test('a signed one without keys to judge it by is named as such, not as forged by somebody', async () => {
    const assertion = {
      credential_id: 'x',
      pre_image: '',
      client_data_json: '',
      authenticator_data: '',
      signature: '',
      certificate: null,
    };
    const run = runWith('passkey', { method: 'passkey', assertion });
    expect((await verifyDecisions(run, { signatures: undefined, development: true })).forged).toMatchObject([
      { fault: 'keys_missing' },
    ]);
  });

  test('what is verified must satisfy the rule by itself: two people, one of them of the group', async () => {
    const run = runWith('session', { method: 'session', groups: ['finance'] }, { method: 'session' });
    const asking = (approvals_required: number, groups_required: Approval['groups_required']): Manifest =>
      run.approval === null ? run : { ...run, approval: { ...run.approval, approvals_required, groups_required } };
    const trust = { signatures: undefined, development: false };
    expect((await verifyDecisions(asking(2, { finance: 1 }), trust)).suffices).toBe(true);
    expect((await verifyDecisions(asking(2, { finance: 2 }), trust)).suffices).toBe(false);
    expect((await verifyDecisions(asking(3, {}), trust)).suffices).toBe(false);
  });
});
