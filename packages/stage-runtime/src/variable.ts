import { z } from 'zod';

const url = (...protocols: string[]) =>
  z
    .string()
    .refine(
      (text) => URL.canParse(text) && protocols.includes(new URL(text).protocol),
      `must be a URL that starts with ${protocols.map((p) => `${p}//`).join(' or ')}`,
    );
const wholeNumber = (max: number, min = 0) =>
  z
    .string()
    .regex(/^\d{1,10}$/, 'must be a whole number')
    .transform(Number)
    .refine((value) => value >= min && value <= max, `must be between ${min} and ${max}`);
const flag = z.enum(['0', '1'], 'must be 0 or 1').transform((value) => value === '1');
const origin = z
  .string()
  .refine(isConsoleOrigin, 'must be an origin (scheme, host and port, nothing after), https:// or http://localhost');
/** What `parse` makes of the text; the sentence of its RangeError is the fault, and must not repeat the text. */
const parsed = <T>(parse: (text: string) => T) =>
  z.string().transform((text, context) => {
    try {
      return parse(text);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      context.addIssue(error.message);
      return z.NEVER;
    }
  });

/** The shapes that environment variables take; for the services' own `config.ts`. */
export const variable = { url, wholeNumber, flag, origin, parsed };

/** Browsers hand out passkeys over https, and at home over http as well; never to an address that is a number. */
function isConsoleOrigin(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const asked = new URL(text);
  return (
    asked.origin === text &&
    (asked.protocol === 'https:' || (asked.protocol === 'http:' && asked.hostname === 'localhost'))
  );
}
