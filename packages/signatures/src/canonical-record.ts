import { canonicalJson, parseStrictJson } from '@counterstamp/manifest-core';
import type { z } from 'zod';

/**
 * Reads a record of ours from the text that was signed; `undefined` unless it fits its schema and is the RFC 8785 form of what it says,
 * so that one record has one text.
 */
export function parseCanonicalRecord<T>(schema: z.ZodType<T>, text: string): T | undefined {
  const json = parseStrictJson(text);
  if (!json.ok || canonicalJson(json.value) !== text) return undefined;
  return schema.safeParse(json.value).data;
}
