import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { type StoreFixture, storeFixture } from '../../../testing/store-fixture.ts';
import { createProgram } from './program.ts';

let db: StoreFixture;
beforeAll(async () => {
  db = await storeFixture(18);
});
afterAll(() => db.close());
beforeEach(() => {
  vi.stubEnv('DATABASE_URL', db.url);
  vi.stubEnv('COUNTERSTAMP_ORIGIN', 'https://approve.example.com');
});
afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

const TENANT = ['--tenant', 'shop_north'];
const ANA = [...TENANT, '--name', 'ana@example.com'];

/** Runs a command as a shell would. @returns what it printed. */
async function run(...args: string[]): Promise<string> {
  let printed = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += String(text);
    return true;
  });
  try {
    await createProgram().parseAsync(args, { from: 'user' });
  } finally {
    vi.restoreAllMocks();
  }
  return printed;
}
async function runJson(...args: string[]): Promise<Record<string, unknown>> {
  return JSON.parse(await run(...args, '--json')) as Record<string, unknown>;
}

describe('the commands for people and keys', () => {
  test('add, change, invite, link, shut out and let in again', async () => {
    const added = await run('person', 'add', ...ANA, '--roles', 'approver,auditor', '--groups', 'finance');
    expect(added).toContain(`counterstamp person invite --tenant shop_north --name ana@example.com`);
    expect(await run('person', 'set', ...ANA, '--roles', 'approver', '--groups', '')).toBe(
      'ana@example.com: roles approver; groups none.\n',
    );
    expect(await run('person', 'invite', ...ANA)).toMatch(
      /^https:\/\/approve\.example\.com\/enrol#[A-Za-z0-9_-]{43}\n$/,
    );
    const identity = ['--issuer', 'https://login.example.com', '--subject', '00u1'];
    expect(await run('person', 'link', ...ANA, ...identity)).toBe(
      'ana@example.com may sign in through https://login.example.com.\n',
    );
    expect(await run('person', 'disable', ...ANA)).toBe('ana@example.com is disabled; sessions ended: 0.\n');
    expect(await run('person', 'list', ...TENANT)).toMatch(
      /^NAME .*\nana@example\.com +person +approver +0 +00u1 at https:\/\/login\.example\.com +disabled since /,
    );
    expect(await run('person', 'enable', ...ANA)).toBe('ana@example.com may come in again.\n');
    expect(await runJson('person', 'enable', ...ANA)).toMatchObject({ changed: false });
  });

  test('make a key with groups and an owner, list it and revoke it', async () => {
    const holder = [...TENANT, '--name', 'support-agent'];
    const made = await runJson(
      ...['key', 'create', ...holder, '--role', 'requester', '--group', 'support', '--owner', 'ana@example.com'],
    );
    const key_id = String(made.key_id);
    expect(await runJson('person', 'list', ...TENANT)).toMatchObject({
      people: expect.arrayContaining([
        expect.objectContaining({ name: 'support-agent', groups: ['support'], owner: 'ana@example.com' }),
      ]),
    });
    expect(await run('key', 'list', ...holder)).toContain(key_id);
    expect(await run('key', 'revoke', key_id)).toBe(`${key_id} of support-agent is revoked.\n`);
    expect(await run('key', 'list', ...holder)).toMatch(/ revoked\n$/);
  });

  test('list and revoke a passkey whose id begins with a hyphen, the last one only when that is said', async () => {
    await db.owner`
      insert into cs.passkey (credential_id, tenant_id, principal_id, public_key, transports, name, backed_up, certificate, created_at)
      select '-credential', tenant_id, principal_id, 'cose', array['usb'], 'blue key', false, '{}', cs.clock()
        from cs.principal where name = 'ana@example.com'`;
    expect(await run('passkey', 'list', ...ANA)).toContain('blue key');
    await expect(run('passkey', 'revoke', '--', '-credential')).rejects.toMatchObject({
      name: 'CliFailure',
      message: expect.stringContaining('It is the only passkey of ana@example.com'),
      next: expect.stringContaining('--last'),
    });
    expect(await run('passkey', 'revoke', '--last', '--', '-credential')).toBe(
      'The passkey of ana@example.com is revoked; they have 0 left.\n',
    );
  });

  test.each([
    [
      ['person', 'add', ...TENANT, '--name', 'ANA@example.com', '--roles', 'auditor'],
      'ana@example.com is there already',
    ],
    [['person', 'invite', ...TENANT, '--name', 'ghost'], 'The tenant has nobody of the name ghost.'],
    [
      ['person', 'set', ...TENANT, '--name', 'support-agent', '--roles', 'operator'],
      'support-agent is a service account',
    ],
    [
      ['key', 'create', ...TENANT, '--name', 'x', '--role', 'auditor', '--owner', 'ghost'],
      'no person of the name ghost',
    ],
    [['key', 'revoke', `key_${'0'.repeat(32)}`], 'There is no key key_'],
    [['passkey', 'revoke', 'nothing'], 'There is no passkey nothing.'],
  ])('%j says why not', async (args, sentence) => {
    await expect(run(...args)).rejects.toMatchObject({
      name: 'CliFailure',
      message: expect.stringContaining(sentence),
    });
  });

  test.each(['http://approve.example.com', 'https://approve.example.com/console', 'approve.example.com'])(
    'no invitation is made for %s, where no passkey works',
    async (origin) => {
      await expect(run('person', 'invite', ...ANA, '--origin', origin)).rejects.toThrow('is no origin');
    },
  );
});
