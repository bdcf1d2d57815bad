import { createHash, createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';

/** AES-256. */
const KEY_BYTES = 32;
/** Bytes of a data key's id. It only tells few keys apart. */
export const KEY_ID_BYTES = 8;

/** A key of the installation that wraps the subjects' keys. As a KeyObject it never appears in a log. */
export interface DataKey {
  /** Hex, derived from the key: nobody has to name keys. */
  readonly id: string;
  readonly key: KeyObject;
}

/** Parses COUNTERSTAMP_DATA_KEY: keys of 32 bytes as base64url, separated by commas. The first wraps what is new, the others still open. */
export function parseDataKeys(
  text: string,
): { ok: true; keys: [DataKey, ...DataKey[]] } | { ok: false; fault: string } {
  const keys: DataKey[] = [];
  for (const part of text.split(',')) {
    const bytes = Buffer.from(part.trim(), 'base64url');
    // Decoding skips what it does not know: only a text that it would write again was whole.
    if (bytes.length !== KEY_BYTES || bytes.toString('base64url') !== part.trim())
      return { ok: false, fault: 'must be 32 random bytes as base64url, or several of them with commas between' };
    keys.push({ id: keyId(bytes), key: createSecretKey(bytes) });
  }
  const [first, ...others] = keys;
  if (first === undefined || new Set(keys.map((key) => key.id)).size < keys.length)
    return { ok: false, fault: 'names a key twice' };
  return { ok: true, keys: [first, ...others] };
}

function keyId(bytes: Uint8Array): string {
  return createHash('sha256')
    .update('cs.data-key-id.v1\0')
    .update(bytes)
    .digest('hex')
    .slice(0, 2 * KEY_ID_BYTES);
}

/** The key of a tenant's digests, derived from a data key (HKDF-SHA256): no tenant's digests say anything about another's. */
export function digestKey({ key }: DataKey, tenant: string): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', key, '', `cs.keyed-digest.v1\0${tenant}`, KEY_BYTES));
}
