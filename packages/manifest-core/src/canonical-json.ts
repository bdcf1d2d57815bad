import serialize from 'canonicalize';
import { z } from 'zod';

export type JsonValue = null | boolean | number | string | JsonValue[] | { [member: string]: JsonValue };
export const Json: z.ZodType<JsonValue> = z.json();
export type JsonObject = { [member: string]: JsonValue };

/**
 * The RFC 8785 form of a JSON value: the text that is digested, shown, sent and compared.
 * @throws {TypeError} for what has no canonical form: a lone surrogate, a number that is not finite, `undefined`.
 */
export function canonicalJson(value: JsonValue): string {
  const text = serialize(value);
  if (text === undefined) throw new TypeError('value has no JSON form');
  return text;
}
