/** Opens an escape; what an ordinary text has no reason to hold. It is escaped itself, so that every escape is one of ours. */
const OPEN = '⟦';
const CLOSE = '⟧';

/**
 * Text that came from outside, in a form that every place can hold: a record, a log, a terminal. What Postgres cannot store (U+0000, half
 * of a surrogate pair), any other control character but tab and line feed, and `⟦` itself each become `⟦U+` + four hex digits + `⟧`, as in
 * `⟦U+0000⟧`. All else stays as it is, and `unescapeText` gives back exactly what came.
 */
export function escapeText(text: string): string {
  return text.replace(/[\p{Cc}\p{Cs}⟦]/gu, (unit) => (unit === '\t' || unit === '\n' ? unit : escapeUnit(unit)));
}

/** A word of an external system, such as a status: as `escapeText`, and everything else that is not printable ASCII too, so that no lookalike passes for it. */
export function escapeWord(word: string): string {
  return word.replace(/[^\x20-\x7e]/g, escapeUnit);
}

/** The text that `escapeText` or `escapeWord` was given. */
export function unescapeText(escaped: string): string {
  return escaped.replace(/⟦U\+([0-9A-F]{4})⟧/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/**
 * The first `max` UTF-16 units of a text, by `escaped`. Where more follow, `⟦+n⟧` at the end says how many were left out: what is cut is
 * visibly cut.
 */
export function keepText(text: string, max: number, escaped: (text: string) => string = escapeText): string {
  if (text.length <= max) return escaped(text);
  // A pair is kept or left out as a whole.
  const end = /[\ud800-\udbff]/.test(text[max - 1] ?? '') && /[\udc00-\udfff]/.test(text[max] ?? '') ? max - 1 : max;
  return `${escaped(text.slice(0, end))}${OPEN}+${text.length - end}${CLOSE}`;
}

/** One UTF-16 unit, or one character as a whole, by its number in at least four hex digits. */
export function escapeUnit(unit: string): string {
  return `${OPEN}U+${(unit.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}${CLOSE}`;
}
