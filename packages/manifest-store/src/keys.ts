import { createHash, randomBytes } from 'node:crypto';
import type { Digest, Ids } from '@counterstamp/manifest-core';
import { answered, type Statements } from './connection.ts';
import type { Role } from './principal.ts';

const KEY = /^csk_([0-9a-f]{32})_([A-Za-z0-9_-]{43})$/;

/** Takes an API key apart: which key it says it is, and the hash that proves it. `undefined` when it cannot be one of ours. */
export function parseApiKey(key: string): { key_id: string; secret_hash: Digest } | undefined {
  const match = KEY.exec(key);
  const [, hex, secret] = match ?? [];
  if (hex === undefined || secret === undefined) return undefined;
  return { key_id: `key_${hex}`, secret_hash: hashSecret(secret) };
}

/** What is stored of a secret of 256 random bits: a plain hash, since such a secret cannot be guessed. */
export function hashSecret(secret: string): Digest {
  return `sha256:${createHash('sha256').update(secret).digest('hex')}` as Digest;
}

/**
 * Makes a principal (if its name is new in the tenant) and a key for it, as the database's owner. The key is returned once and never stored.
 * Role and groups are added to what the principal has; a key of a role that its principal lost opens nothing.
 * @param expiresInMs life of the key in milliseconds; absent: until revoked.
 */
export async function createApiKey(
  sql: Statements,
  ids: Ids,
  wanted: {
    tenant_id: string;
    name: string;
    role: Role;
    groups?: readonly string[];
    owner_id?: string;
    expiresInMs?: number;
  },
): Promise<{ key: string; key_id: string; principal_id: string }> {
  const hex = ids.uuid().replaceAll('-', '');
  const secret = randomBytes(32).toString('base64url');
  const groups = JSON.stringify(wanted.groups ?? []);
  const kind = wanted.role === 'requester' ? 'service_account' : 'person';
  const [row] = await answered(sql<{ principal_id: string }[]>`
    with who as (
      insert into cs.principal as p (principal_id, tenant_id, name, kind, roles, groups, owner_id)
      select ${ids.id('principal')}, ${wanted.tenant_id}, ${wanted.name}, ${kind}, array[${wanted.role}], array(select jsonb_array_elements_text(${groups}::text::jsonb)), ${wanted.owner_id ?? null}
      on conflict (tenant_id, lower(name)) do update set
        roles = array(select distinct r from unnest(p.roles || excluded.roles) r order by r),
        groups = array(select distinct g from unnest(p.groups || excluded.groups) g order by g),
        owner_id = coalesce(excluded.owner_id, p.owner_id)
      returning principal_id)
    insert into cs.api_key (key_id, tenant_id, principal_id, role, secret_hash, created_at, expires_at)
    select ${`key_${hex}`}, ${wanted.tenant_id}, principal_id, ${wanted.role}, ${hashSecret(secret)}, cs.clock(),
           cs.clock() + cs.ms(${wanted.expiresInMs ?? null}::float8) from who
    returning principal_id`);
  if (row === undefined) throw new Error('the key was not stored');
  return { key: `csk_${hex}_${secret}`, key_id: `key_${hex}`, principal_id: row.principal_id };
}
