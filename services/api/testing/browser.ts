import { addPerson, invitePerson, type PrincipalRole } from '@counterstamp/manifest-store';
import { type Browser, createBrowser } from '../../../testing/browser.ts';
import { testIds } from '../../../testing/store-fixture.ts';
import type { ApiFixture } from './api-fixture.ts';

/** A person of the tenant and an invitation for them. */
export async function invited(
  fixture: ApiFixture,
  name: string,
  roles: readonly PrincipalRole[],
  more: { tenant?: string; groups?: readonly string[]; owner_of?: readonly string[] } = {},
): Promise<{ principal_id: string; token: string }> {
  const tenant_id = more.tenant ?? 'shop_north';
  const { owner } = fixture.store;
  const { groups = [], owner_of = [] } = more;
  const added = await addPerson(owner, testIds, { tenant_id, name, roles, groups, owner_of });
  if (added.kind === 'refused') throw new Error(`not added: ${added.code}`);
  const invitation = await invitePerson(owner, testIds, { tenant_id, name, expiresInMs: 3_600_000 });
  if (invitation.kind === 'refused') throw new Error(`not invited: ${invitation.code}`);
  return { principal_id: added.principal_id, token: invitation.token };
}

/** A person who enrolled and is signed in at this api. */
export async function signedIn(
  fixture: ApiFixture,
  url: string,
  name: string,
  roles: readonly PrincipalRole[],
  more?: Parameters<typeof invited>[3],
): Promise<Browser & { principal_id: string }> {
  const { principal_id, token } = await invited(fixture, name, roles, more);
  const browser = createBrowser(url);
  const enrolled = await browser.enrol(token);
  if (enrolled.status !== 201)
    throw new Error(`${name} could not enrol: ${enrolled.body.code} ${enrolled.body.detail}`);
  return Object.assign(browser, { principal_id });
}
