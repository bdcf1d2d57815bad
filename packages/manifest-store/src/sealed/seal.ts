import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from 'node:crypto';

/** Format of a sealed value: one version byte, the nonce, AES-256-GCM ciphertext, the tag. */
const VERSION = 1;
/** GCM's own nonce length, in bytes; random, which bounds one key to 2^32 values. A subject has far fewer. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const OVERHEAD_BYTES = 1 + NONCE_BYTES + TAG_BYTES;

/** A sealed value is not what was sealed, or not in the place it was sealed for. */
export class SealBroken extends Error {
  override readonly name = 'SealBroken';
}

/**
 * Encrypts and authenticates a value with a 256-bit key.
 * @param place what the value belongs to (`placeOf`): it opens nowhere else.
 * @param nonce for test vectors only: one nonce for two values under one key gives both away.
 */
export function seal(
  value: string | Uint8Array,
  key: KeyObject,
  place: string,
  nonce = randomBytes(NONCE_BYTES),
): Buffer {
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES }).setAAD(Buffer.from(place));
  const text = typeof value === 'string' ? Buffer.from(value, 'utf8') : value;
  return Buffer.concat([Buffer.of(VERSION), nonce, cipher.update(text), cipher.final(), cipher.getAuthTag()]);
}

/**
 * The value that was sealed.
 * @throws {SealBroken} when a bit differs, the key is another, or the value was sealed for another place.
 */
export function open(sealed: Uint8Array, key: KeyObject, place: string): Buffer {
  if (sealed.length < OVERHEAD_BYTES || sealed[0] !== VERSION)
    throw new SealBroken(`${firstLine(place)} is not a sealed value of a known form`);
  const nonce = sealed.subarray(1, 1 + NONCE_BYTES);
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES })
    .setAAD(Buffer.from(place))
    .setAuthTag(sealed.subarray(-TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(sealed.subarray(1 + NONCE_BYTES, -TAG_BYTES)), decipher.final()]);
  } catch (error) {
    throw new SealBroken(`${firstLine(place)} is not what was sealed`, { cause: error });
  }
}

/** The authenticated place of a value: the row that it belongs to. A database owner cannot move it to another one. */
export function placeOf(table: 'run_input' | 'proposal' | 'evidence_value', id: string): string {
  return `cs.seal.v1\n${table}\n${id}`;
}

/** For a message: which row it is about, on one line. */
function firstLine(place: string): string {
  return place.split('\n').slice(1).join(' ');
}
