import { createHash, randomBytes } from 'node:crypto';
import type { Digest, Ids } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';
import type { Role } from './principal.ts';

const KEY = /^csk_([0-9a-f]{32})_([A-Za-z0-9_-]{43})$/;

/** Takes an API key apart: which key it says it is, and the hash that proves it. `undefined` when it cannot be one of ours. */
export function parseApiKey(key: string): { key_id: string; secret_hash: Digest } | undefined {
  const match = KEY.exec(key);
  const [, hex, secret] = match ?? [];
  if (hex === undefined || secret === undefined) return undefined;
  return { key_id: `key_${hex}`, secret_hash: hashSecret(secret) };
}

function hashSecret(secret: string): Digest {
  return `sha256:${createHash('sha256').update(secret).digest('hex')}` as Digest;
}

/**
 * Makes a principal (if its name is new in the tenant) and a key for it, as the database's owner. The key is returned once and never stored.
 * @param expiresInMs life of the key in milliseconds; absent: until revoked.
 */
export async function createApiKey(
  sql: Sql,
  ids: Ids,
  wanted: { tenant_id: string; name: string; role: Role; expiresInMs?: number },
): Promise<{ key: string; key_id: string; principal_id: string }> {
  const hex = ids.uuid().replaceAll('-', '');
  const secret = randomBytes(32).toString('base64url');
  const kind = wanted.role === 'requester' ? 'service_account' : 'person';
  const [row] = await answered(sql<{ principal_id: string }[]>`
    with who as (
      insert into cs.principal (principal_id, tenant_id, name, kind) values (${ids.id('principal')}, ${wanted.tenant_id}, ${wanted.name}, ${kind})
      on conflict (tenant_id, name) do update set name = excluded.name returning principal_id)
    insert into cs.api_key (key_id, tenant_id, principal_id, role, secret_hash, created_at, expires_at)
    select ${`key_${hex}`}, ${wanted.tenant_id}, principal_id, ${wanted.role}, ${hashSecret(secret)}, cs.clock(),
           cs.clock() + cs.ms(${wanted.expiresInMs ?? null}::float8) from who
    returning principal_id`);
  if (row === undefined) throw new Error('the key was not stored');
  return { key: `csk_${hex}_${secret}`, key_id: `key_${hex}`, principal_id: row.principal_id };
}
