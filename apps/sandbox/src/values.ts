import { z } from 'zod';

/** Characters of an id in a path or body. Generous on purpose: ids are data here, and strange ones must come through. */
const ID_LENGTH_MAX = 255;

export const Id = z.string().min(1).max(ID_LENGTH_MAX);

/** Money in ISO 4217 minor units (cents, yen): 1…2^53 − 1, never a fraction. */
export const PositiveMinorUnits = z.int().positive();

/** Money in ISO 4217 minor units, 0…2^53 − 1. */
export const MinorUnits = z.int().nonnegative();

export const Currency = z.string().regex(/^[A-Z]{3}$/, 'three capital letters (ISO 4217)');

export const Reason = z.string().min(1).max(500);

/** Largest metadata object, in bytes of JSON. */
const METADATA_BYTES_MAX = 8 * 1024;

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A free-form object, kept by reference: a record schema would drop a member named `__proto__`. */
export const Metadata = z
  .custom<Record<string, unknown>>(isPlainObject, 'must be an object')
  .refine((value) => Buffer.byteLength(JSON.stringify(value)) <= METADATA_BYTES_MAX, 'is larger than 8 KB');

export type Metadata = z.infer<typeof Metadata>;

/** A duration in milliseconds. One year at most, enough for every "three days later". */
export const DurationMs = z
  .int()
  .nonnegative()
  .max(366 * 24 * 3600 * 1000);

/** A wait on the wire in milliseconds, real time. Ten minutes at most: no caller waits longer. */
export const WaitMs = z.int().nonnegative().max(600_000);
