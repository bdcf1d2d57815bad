import { hashSecret, parseApiKey } from '@counterstamp/manifest-store';
import type { Caller } from './caller.ts';
import type { ApiDeps } from './deps.ts';
import { type Refused, refused } from './problem.ts';
import { carriesCsrfToken, csrfTokenOf, isFromOrigin, sessionSecretOf } from './session-cookie.ts';
import { SESSION_IDLE_MS } from './sessions.ts';

/** Methods that change nothing, whoever sends them. */
const SAFE_METHODS: readonly string[] = ['GET', 'HEAD', 'OPTIONS'];

/**
 * Who sent a request: the holder of the bearer key of its `Authorization` header, or the person of its session cookie, who has to show for
 * every change that a page of ours sent it. What cannot be a key or a secret of ours never reaches the database, and a try without a valid
 * one writes nothing there.
 * @throws {StoreUnavailable}
 */
export async function authenticate(
  { store, identities, signIn }: Pick<ApiDeps, 'store' | 'identities' | 'signIn'>,
  request: Request,
): Promise<Caller | Refused> {
  const header = request.headers.get('authorization');
  const secret = signIn === undefined ? undefined : sessionSecretOf(request, signIn.origin);
  if (signIn === undefined || secret === undefined) return await holderOfKey(store, header);
  if (header !== null) return refused('credentials_ambiguous');
  if (secret === null) return refused('unauthenticated');

  // Judged before anything is read: the token belongs to the secret, whether or not the session still lives.
  const changes = !SAFE_METHODS.includes(request.method);
  if (changes && !(isFromOrigin(request, signIn.origin) && carriesCsrfToken(request, secret))) {
    return refused('csrf_refused');
  }
  const session = await identities.sessionOf(hashSecret(secret), SESSION_IDLE_MS);
  if (session === undefined) return refused('unauthenticated');
  const { tenant_id, principal_id, roles } = session;
  return { via: 'session', tenant_id, principal_id, roles, session, csrf_token: csrfTokenOf(secret) };
}

async function holderOfKey(store: ApiDeps['store'], header: string | null): Promise<Caller | Refused> {
  const [, token] = /^Bearer +([^ ]+) *$/i.exec(header ?? '') ?? [];
  const key = token === undefined ? undefined : parseApiKey(token);
  const holder = key === undefined ? undefined : await store.authenticate(key.key_id, key.secret_hash);
  if (holder === undefined) return refused('unauthenticated');
  const { tenant_id, principal_id, role } = holder;
  return { via: 'key', tenant_id, principal_id, roles: [role] };
}
