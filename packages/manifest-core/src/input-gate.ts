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
  if (refusal !== undefined) return { ok: false, refusal };
  if (/\d[eE]/.test(text)) noteExponents(document.body, value, text);
  return { ok: true, value };
}

/**
 * Which members of an object or array are whole numbers that were spelled with an exponent. A value does not show how it was written, and
 * where an integer belongs only the schema knows: `parseStrictJson` notes it here, `parseWith` judges.
 */
const exponentsOf = new WeakMap<object, Set<string>>();

type Path = readonly string[];

function note(holder: object, member: string): void {
  const noted = exponentsOf.get(holder);
  if (noted === undefined) exponentsOf.set(holder, new Set([member]));
  else noted.add(member);
}

/** Walks the syntax tree and the value of the same text side by side. */
function noteExponents(node: AnyNode, value: JsonValue, text: string): void {
  if (typeof value !== 'object' || value === null) return;
  const members =
    node.type === 'Object'
      ? node.members.map((member) => [nameOf(member), member.value] as const)
      : node.type === 'Array'
        ? node.elements.map((element, index) => [String(index), element.value] as const)
        : [];
  for (const [name, inner] of members) {
    if (inner.type === 'Number' && Number.isInteger(inner.value) && /[eE]/.test(sourceOf(inner, text)))
      note(value, name);
    else noteExponents(inner, memberOf(value, name) as JsonValue, text);
  }
}

/** Places below a value that `noteExponents` noted. */
function exponentPaths(value: unknown, above: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [];
  const own = [...(exponentsOf.get(value) ?? [])].map((member) => [...above, member]);
  return [...own, ...Object.entries(value).flatMap(([name, inner]) => exponentPaths(inner, [...above, name]))];
}

/** A copy in which each number that was spelled with an exponent is a fraction: what refuses it takes integers only. */
function withFractions(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const noted = exponentsOf.get(value);
  const copied = Object.entries(value).map(([name, inner]): [string, unknown] => [
    name,
    noted?.has(name) === true ? 0.5 : withFractions(inner),
  ]);
  return Array.isArray(value) ? copied.map(([, inner]) => inner) : Object.fromEntries(copied);
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Readonly<Record<string, unknown>>)[name]
    : undefined;
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
      return inspectNumber(node.value, sourceOf(node, text), path);
    default:
      return undefined;
  }
}

/** How a node was written. */
function sourceOf(node: AnyNode, text: string): string {
  return text.slice(...(node.range ?? [0, 0]));
}

function nameOf({ name }: MemberNode): string {
  return name.type === 'String' ? name.value : name.name;
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
    const name = nameOf(member);
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

/**
 * Checks a value against a schema and names the first fault by code and place. A schema may use a code of ours as its message.
 * Where the schema takes integers only, `10e2` is refused like a fraction: digits that a person reads differently from a machine are no
 * amount to approve. (`1000.0` says 1000 to both, and is 1000.)
 */
export function parseWith<T>(schema: z.ZodType<T>, value: unknown, at = ''): Parsed<T> {
  const result = schema.safeParse(value, { reportInput: true });
  if (!result.success) return refuseIssue(result.error.issues[0], at);
  const exponents = exponentPaths(value);
  if (exponents.length === 0) return { ok: true, value: result.data };

  const probed = schema.safeParse(withFractions(value), { reportInput: true });
  const places = new Set(exponents.map((path) => pointerOf(path)));
  const misplaced = probed.error?.issues.find((issue) => places.has(pointerOf(issue.path)));
  if (misplaced !== undefined) {
    const refused = refuseIssue(misplaced, at);
    return refuse(refused.refusal.code, refused.refusal.path, 'an integer is written in digits, without an exponent');
  }
  // The schema made objects of its own; what it passed on may be checked again, by a schema that knows more.
  for (const path of exponents) {
    const holder = path.slice(0, -1).reduce<unknown>(memberOf, result.data);
    if (typeof holder === 'object' && holder !== null) note(holder, path.at(-1) ?? '');
  }
  return { ok: true, value: result.data };
}

function pointerOf(path: readonly PropertyKey[], at = ''): string {
  return path.reduce<string>((parent, part) => pointer(parent, String(part)), at);
}

function refuseIssue(issue: z.core.$ZodIssue | undefined, at: string): { ok: false; refusal: Refusal } {
  if (issue === undefined) return refuse('value_invalid', at);
  const path = pointerOf(issue.path, at);
  if (isErrorCode(issue.message)) return refuse(issue.message, path);
  switch (issue.code) {
    case 'unrecognized_keys':
      return refuse('unknown_member', pointer(path, issue.keys[0] ?? ''));
    case 'too_big':
      return refuse('value_too_large', path, issue.message);
    case 'invalid_type':
      if (issue.input === undefined) return refuse('member_missing', path);
      return refuse(issue.expected === 'int' ? 'number_not_integer' : 'value_invalid', path, issue.message);
    default:
      return refuse('value_invalid', path, issue.message);
  }
}
