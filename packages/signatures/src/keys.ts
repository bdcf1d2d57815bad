import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { canonicalJson, type JsonValue, parseStrictJson } from '@counterstamp/manifest-core';
import { z } from 'zod';
import { Base64url } from './base64.ts';

/** What a key may vouch for: passkeys at enrolment, the heads of all chains, receipts. */
export const KEY_PURPOSES = ['credential', 'checkpoint', 'receipt'] as const;
export type KeyPurpose = (typeof KEY_PURPOSES)[number];

/** 32 bytes as base64url: an Ed25519 public or private key (RFC 8037). */
const KeyBytes = Base64url.length(43);
const PUBLIC_MEMBERS = { kty: z.literal('OKP'), crv: z.literal('Ed25519'), x: KeyBytes };
const PublicJwk = z.strictObject(PUBLIC_MEMBERS);
const PrivateJwk = z.strictObject({ ...PUBLIC_MEMBERS, d: KeyBytes, kid: z.string().optional() });
const TrustedJwk = z.strictObject({
  ...PUBLIC_MEMBERS,
  kid: z.string(),
  purposes: z.array(z.enum(KEY_PURPOSES)).min(1),
});
const TrustedJwkSet = z.strictObject({ keys: z.array(TrustedJwk).min(1) });

export type PublicJwk = z.infer<typeof PublicJwk>;
/** A public key with its id and, in a member of ours, what it may vouch for. */
export type TrustedJwk = z.infer<typeof TrustedJwk>;

/** An Ed25519 key that signs. The private part stays inside. */
export interface SigningKey {
  /** RFC 7638 thumbprint of the public key, base64url. */
  readonly key_id: string;
  readonly public_jwk: PublicJwk;
  /** The 64 bytes of an Ed25519 signature (RFC 8032). */
  sign(bytes: Uint8Array): Uint8Array;
}

/** Public keys that a verifier was given out of band, each with its purposes. */
export interface TrustedKeys {
  /** All of them as they were given, for whoever asks. */
  readonly published: { keys: TrustedJwk[] };
  /** `undefined` for an unknown key, and for one that may not vouch for `purpose`. */
  find(keyId: string, purpose: KeyPurpose): KeyObject | undefined;
}

/**
 * Reads a private Ed25519 key: an RFC 8037 JWK with `kty`, `crv`, `x`, `d` and, if it likes, `kid`.
 * @throws {RangeError} a sentence that names the fault and never shows the text.
 */
export function parseSigningKey(jwkText: string): SigningKey {
  const json = parseStrictJson(jwkText);
  if (!json.ok) throw new RangeError('the signing key is not well-formed JSON');
  const jwk = PrivateJwk.safeParse(json.value);
  if (!jwk.success) {
    throw new RangeError(
      `the signing key is not a private Ed25519 JWK with exactly kty, crv, x, d and an optional kid; at fault: ${faultyMembers(jwk.error)}`,
    );
  }
  const { kid, ...members } = jwk.data;
  const privateKey = createPrivateKey({ key: members, format: 'jwk' });
  const publicJwkOfKey = PublicJwk.parse(createPublicKey(privateKey).export({ format: 'jwk' }));
  // Node signs with `d` alone: a wrong `x` would publish a key that verifies none of the signatures.
  if (publicJwkOfKey.x !== members.x) throw new RangeError("the signing key's x is not the public key of its d");
  const keyId = thumbprint(publicJwkOfKey);
  if (kid !== undefined && kid !== keyId) {
    throw new RangeError(`the signing key's kid is not its RFC 7638 thumbprint, which is ${keyId}`);
  }
  return {
    key_id: keyId,
    public_jwk: publicJwkOfKey,
    sign: (bytes) => sign(null, bytes, privateKey),
  };
}

/** A new private key as `parseSigningKey` reads it, from the system's randomness. */
export function generateSigningKey(): string {
  const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  const { kty, crv, x, d } = PrivateJwk.parse(jwk);
  return canonicalJson({ kty, crv, x, d, kid: thumbprint({ kty, crv, x }) });
}

/**
 * Reads the public keys that a verifier trusts: a JWK set whose keys carry `kid` (their RFC 7638 thumbprint) and `purposes`. Several keys of
 * one purpose are a rotation: what any of them signed holds for as long as it is listed.
 * @throws {RangeError} a sentence that names the fault and never shows the text, which may hold a private key by mistake.
 */
export function parseTrustedKeys(jwksText: string): TrustedKeys {
  const json = parseStrictJson(jwksText);
  if (!json.ok) throw new RangeError('the trusted keys are not well-formed JSON');
  if (holdsPrivateKey(json.value)) {
    throw new RangeError('the trusted keys hold a private key (member d): list public keys only, and replace that key');
  }
  const set = TrustedJwkSet.safeParse(json.value);
  if (!set.success) {
    throw new RangeError(
      `the trusted keys are not a JWK set of Ed25519 keys with exactly kty, crv, x, kid and purposes (${KEY_PURPOSES.join(', ')}); at fault: ${faultyMembers(set.error)}`,
    );
  }
  const byId = new Map<string, { key: KeyObject; purposes: readonly KeyPurpose[] }>();
  for (const [index, { kid, purposes, ...jwk }] of set.data.keys.entries()) {
    const keyId = thumbprint(jwk);
    if (kid !== keyId) {
      throw new RangeError(`the kid of trusted key ${index} is not its RFC 7638 thumbprint, which is ${keyId}`);
    }
    if (byId.has(keyId)) throw new RangeError(`the trusted keys list ${keyId} twice`);
    byId.set(keyId, { key: createPublicKey({ key: jwk, format: 'jwk' }), purposes });
  }
  return {
    published: set.data,
    find(keyId, purpose) {
      const entry = byId.get(keyId);
      return entry?.purposes.includes(purpose) === true ? entry.key : undefined;
    },
  };
}

/** What to publish of a signing key, and for what. */
export function publicJwk(key: SigningKey, purposes: readonly KeyPurpose[]): TrustedJwk {
  return { ...key.public_jwk, kid: key.key_id, purposes: [...purposes] };
}

/** A JWK set as `parseTrustedKeys` reads it. */
export function trustedKeysText(keys: readonly TrustedJwk[]): string {
  return canonicalJson({ keys: [...keys] });
}

/** RFC 7638: SHA-256 over the required members in lexical order without white space, which is their RFC 8785 form. */
function thumbprint({ crv, kty, x }: PublicJwk): string {
  return createHash('sha256').update(canonicalJson({ crv, kty, x }), 'utf8').digest('base64url');
}

/** Places of a schema's faults by name alone: a message of the schema could quote a value. */
function faultyMembers(error: z.ZodError): string {
  const places = error.issues.map((issue) => {
    const names = issue.code === 'unrecognized_keys' ? issue.keys : [];
    return [...issue.path, ...names].map(String).join('.') || 'the whole';
  });
  return [...new Set(places)].join(', ');
}

function holdsPrivateKey(value: JsonValue): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([name, inner]) => name === 'd' || holdsPrivateKey(inner));
}
