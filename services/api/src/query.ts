import { type Parsed, parseWith, pointer } from '@counterstamp/manifest-core';
import type { z } from 'zod';
import { refused } from './problem.ts';

/** The query of an address as its schema reads it. A parameter that is given twice is refused: which one counts is nobody's to guess. */
export function parseQuery<T>(schema: z.ZodType<T>, request: Request): Parsed<T> {
  const once: Record<string, string> = {};
  for (const [name, value] of new URL(request.url).searchParams) {
    const path = pointer('', name);
    if (Object.hasOwn(once, name))
      return { ok: false, refusal: { code: 'value_invalid', path, detail: 'the parameter is given twice' } };
    // A plain assignment of `__proto__` would vanish without a word.
    if (name === '__proto__') return { ok: false, refusal: refused('unknown_member', path) };
    once[name] = value;
  }
  return parseWith(schema, once);
}
