import { createHmac, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import type { Digest } from '@counterstamp/manifest-core';
import { type DataKey, digestKey, KEY_ID_BYTES } from './data-keys.ts';
import { open, SealBroken, seal } from './seal.ts';

/** Format of a wrapped key: one version byte, the id of the data key, and the subject's key sealed under it. */
const VERSION = 1;
const HEAD_BYTES = 1 + KEY_ID_BYTES;

/** Personal data is sealed under a data key that this process was not given. */
export class DataKeyMissing extends Error {
  override readonly name = 'DataKeyMissing';
}

/** Whose key it is. */
export interface Subject {
  tenant_id: string;
  subject: string;
}

/** What a process that holds data keys can do with them. */
export interface Sealing {
  /** Ids of the data keys, the wrapping one first. */
  readonly key_ids: readonly string[];
  /** A fresh subject key, wrapped: a proposal, which counts only if the subject has none yet. */
  freshKey(whose: Subject): Buffer;
  /**
   * A subject's key.
   * @throws {DataKeyMissing} when it is wrapped under a data key that is not here.
   * @throws {SealBroken} when it is not the key that was wrapped for this subject.
   */
  unwrap(wrapped: Uint8Array, whose: Subject): KeyObject;
  /** A digest that says nothing to who holds no data key: HMAC-SHA256 over a plain digest, in its spelling. One for each data key, in their order. */
  keyedDigests(tenant: string, digest: Digest): [Digest, ...Digest[]];
}

/** @param keys the first wraps what is new. */
export function createSealing(keys: readonly [DataKey, ...DataKey[]]): Sealing {
  const [first, ...others] = keys;
  const place = ({ tenant_id, subject }: Subject) => `cs.wrap.v1\n${tenant_id}\n${subject}`;
  const keyed = (data: DataKey, tenant: string, digest: Digest) =>
    `sha256:${createHmac('sha256', digestKey(data, tenant)).update(digest).digest('hex')}` as Digest;
  return {
    key_ids: keys.map((key) => key.id),
    freshKey: (whose) =>
      Buffer.concat([Buffer.of(VERSION), Buffer.from(first.id, 'hex'), seal(randomBytes(32), first.key, place(whose))]),
    unwrap(wrapped, whose) {
      if (wrapped[0] !== VERSION) throw new SealBroken('a wrapped key is of no known form');
      const id = Buffer.from(wrapped.subarray(1, HEAD_BYTES)).toString('hex');
      const data = keys.find((key) => key.id === id);
      if (data === undefined)
        throw new DataKeyMissing(
          `personal data is sealed under data key ${id}, which is not among COUNTERSTAMP_DATA_KEY`,
        );
      return createSecretKey(open(wrapped.subarray(HEAD_BYTES), data.key, place(whose)));
    },
    keyedDigests: (tenant, digest) => [
      keyed(first, tenant, digest),
      ...others.map((data) => keyed(data, tenant, digest)),
    ],
  };
}

/** A key that nobody keeps: what is sealed under it is erased from the start. For what still arrives after an erasure. */
export function keyNobodyHas(): KeyObject {
  return createSecretKey(randomBytes(32));
}
