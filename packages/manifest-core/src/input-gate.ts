import { type AnyNode, type DocumentNode, type MemberNode, parse } from '@humanwhocodes/momoa';
import type { z } from 'zod';
import type { JsonValue } from './canonical-json.ts';
import { ERRORS, type ErrorCode, isErrorCode, type Refusal } from './errors.ts';

/** Deeper documents have no honest use here, and recursion over them costs stack. */
const DEPTH_MAX = 32;

export type Parsed<T> = { ok: true; value: T } | { ok: false; refusal: Refusal };

/** Joins a member or index to an RFC 6901 pointer. */
export function pointer(parent: string, part: string | number): string {
  return `${parent}/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`;
}

function refuse(code: ErrorCode, path: string, detail: string = ERRORS[code].title): { ok: false; refusal: Refusal } {
  return { ok: false, refusal: { code, path, detail } };
}

/**
 * Reads JSON text as strictly as an approval deserves: what a lenient parser would settle silently is refused with its place.
 * Refused: syntax errors, duplicate members (also spelled with escapes), lone surrogates, U+0000, integers beyond 2^53 − 1,
 * `__proto__` members, nesting beyond 32. The value itself comes from JSON.parse.
 */
export function parseStrictJson(text: string): Parsed<JsonValue> {
  let value: JsonValue;
  try {
    value = JSON.parse(text) as JsonValue;
  } catch (error) {
    return refuse('json_syntax', '', error instanceof Error ? error.message : String(error));
  }
  const deep = depthOf(text);
  if (deep > DEPTH_MAX) return refuse('nesting_too_deep', '', `nested ${deep} deep, the limit is ${DEPTH_MAX}`);
  const document: DocumentNode = parse(text, { mode: 'json', ranges: true });
  const refusal = inspect(document.body, '', text);
  return refusal === undefined ? { ok: true, value } : { ok: false, refusal };
}

/** Deepest nesting of arrays and objects in well-formed JSON text, found without recursion. */
function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (inString) {
      if (c === '\\') i++;
      else if (c === '"') inString = false;
    } else if (c === '"') inString = true;
    else if (c === '{' || c === '[') deepest = Math.max(deepest, ++depth);
    else if (c === '}' || c === ']') depth--;
  }
  return deepest;
}

function inspect(node: AnyNode, path: string, text: string): Refusal | undefined {
  switch (node.type) {
    case 'Object':
      return inspectMembers(node.members, path, text);
    case 'Array':
      for (const [index, element] of node.elements.entries()) {
        const refusal = inspect(element.value, pointer(path, index), text);
        if (refusal !== undefined) return refusal;
      }
      return undefined;
    case 'String':
      return inspectText(node.value, path);
    case 'Number':
      return inspectNumber(node.value, text.slice(...(node.range ?? [0, 0])), path);
    default:
      return undefined;
  }
}

/** A fraction is the schema's question; one that a double turns into a whole number, or into none, was changed before anyone saw it. */
function inspectNumber(value: number, literal: string, path: string): Refusal | undefined {
  const changed = Number.isInteger(value)
    ? !Number.isSafeInteger(value) || !isWholeLiteral(literal)
    : !Number.isFinite(value);
  if (!changed) return undefined;
  const shown = literal.length > 40 ? `${literal.slice(0, 40)}…` : literal;
  return { code: 'number_not_safe', path, detail: `${shown} would be rounded to ${value}` };
}

/** Whether a JSON number's own digits say a whole number: `1e2` and `5.0` do, `1998.99999999999999999` does not. */
function isWholeLiteral(literal: string): boolean {
  const [, whole = '', fraction = '', exponent = '0'] = /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(literal) ?? [];
  const digits = `${whole}${fraction}`;
  let end = digits.length; // A loop: /0+$/ would take quadratic time on a long run of zeros.
  while (end > 0 && digits[end - 1] === '0') end--;
  return end === 0 || Number(exponent) + whole.length - end >= 0;
}

function inspectMembers(members: readonly MemberNode[], path: string, text: string): Refusal | undefined {
  const seen = new Set<string>();
  for (const member of members) {
    const name = member.name.type === 'String' ? member.name.value : member.name.name;
    const here = pointer(path, name);
    const bad = inspectText(name, here);
    if (bad !== undefined) return { ...bad, path };
    if (seen.has(name)) return { code: 'duplicate_member', path: here, detail: ERRORS.duplicate_member.title };
    if (name === '__proto__')
      return { code: 'unknown_member', path: here, detail: 'a member must not be named __proto__' };
    seen.add(name);
    const refusal = inspect(member.value, here, text);
    if (refusal !== undefined) return refusal;
  }
  return undefined;
}

function inspectText(value: string, path: string): Refusal | undefined {
  if (!value.isWellFormed()) return { code: 'text_not_well_formed', path, detail: ERRORS.text_not_well_formed.title };
  if (value.includes('\0')) return { code: 'text_has_nul', path, detail: ERRORS.text_has_nul.title };
  return undefined;
}

/** Checks a value against a schema and names the first fault by code and place. A schema may use a code of ours as its message. */
export function parseWith<T>(schema: z.ZodType<T>, value: unknown, at = ''): Parsed<T> {
  const result = schema.safeParse(value, { reportInput: true });
  if (result.success) return { ok: true, value: result.data };
  const issue = result.error.issues[0];
  if (issue === undefined) return refuse('value_invalid', at);
  const path = issue.path.reduce<string>(
    (parent, part) => pointer(parent, typeof part === 'symbol' ? String(part) : part),
    at,
  );
  if (isErrorCode(issue.message)) return refuse(issue.message, path);
  switch (issue.code) {
    case 'unrecognized_keys':
      return refuse('unknown_member', pointer(path, issue.keys[0] ?? ''));
    case 'too_big':
      return refuse('value_too_large', path, issue.message);
    case 'invalid_type':
      return issue.input === undefined ? refuse('member_missing', path) : refuse('value_invalid', path, issue.message);
    default:
      return refuse('value_invalid', path, issue.message);
  }
}
