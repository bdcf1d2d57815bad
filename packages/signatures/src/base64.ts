import { z } from 'zod';

/** Bytes as base64url without padding (RFC 4648 section 5), in the one spelling that encoding gives: what is compared as text must not have two. */
export const Base64url = z
  .string()
  .min(1)
  .refine((text) => Buffer.from(text, 'base64url').toString('base64url') === text, 'not canonical base64url');

/** The bytes of base64 in either alphabet, with or without padding; `undefined` for any other text. */
export function bytesOfBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  const spellings = (['base64', 'base64url'] as const).map((alphabet) => bytes.toString(alphabet));
  return spellings.some((spelling) => spelling === text || spelling.replace(/=+$/, '') === text) ? bytes : undefined;
}
