import { escapeUnit } from './evidence-text.ts';

/** Marks that one letter may carry: Vietnamese and pointed Hebrew need two or three, and more only cover what stands around them. */
const MARKS_MAX = 3;
/** Stands for a line feed in front of the break, so that a line which a text breaks never passes for a line of ours. */
const LINE_BREAK = '⏎';

/** What is escaped wherever it stands. Each is tried on one character that is not printable ASCII. */
const DECEPTIVE: readonly RegExp[] = [
  // Controls, format characters (the bidirectional ones are among them), private and unassigned code points, halves of surrogate pairs.
  /\p{C}/u,
  // What a renderer may leave out: zero-width characters, fillers, variation selectors, tags.
  /\p{Default_Ignorable_Code_Point}/u,
  // Spaces and separators that are not U+0020, and the Braille cell without dots, which looks like one.
  /\p{Z}|\u2800/u,
  // Digits and numerals that are not 0-9.
  /\p{N}/u,
  // Marks that enclose a letter or strike it through.
  /\p{Me}|[\u0334-\u0338]|[\u20d2\u20d3]|[\u20d8-\u20da]|[\u20e5-\u20eb]/u,
  // What our own notation is made of, and what looks like it.
  /[⟦⟧〚〛⏎]/u,
];
/** Latin letters that no orthography in wide use has; many look like ASCII (ɑ, ɡ, ǃ). */
const RARE_LATIN = /^(?![A-Za-z\u00c0-\u01bf\u01c4-\u024f\u1e00-\u1eff])\p{Script=Latin}$/u;
/** Compatibility forms that ordinary prose is full of and that cannot be taken for the plain character at their width. */
const ORDINARY_FORMS = /^[…，：；！？（）]$/u;

/** One word as far as scripts are concerned: letters with their marks, and the digits and connectors between them. */
const WORD = /[\p{L}\p{M}0-9_'’]+/gu;
/** Scripts that are told from each other within a word; letters of all others count as one more. */
const SCRIPTS: readonly (readonly [string, RegExp])[] = [
  ['latin', /\p{Script=Latin}/u],
  ['cyrillic', /\p{Script=Cyrillic}/u],
  ['greek', /\p{Script=Greek}/u],
  // Written in one word with each other.
  ['east_asian', /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|\p{Script=Bopomofo}/u],
  ['armenian', /\p{Script=Armenian}/u],
  ['cherokee', /\p{Script=Cherokee}/u],
  ['coptic', /\p{Script=Coptic}/u],
  ['georgian', /\p{Script=Georgian}/u],
  ['hebrew', /\p{Script=Hebrew}/u],
  ['arabic', /\p{Script=Arabic}/u],
  ['shared', /\p{Script=Common}|\p{Script=Inherited}/u],
];

/**
 * Free text as an approver may see it. Every character that could make it read differently from what is bound becomes a visible escape,
 * `⟦U+` and its number in hex and `⟧`, as in `⟦U+202E⟧`: what hides, reorders or passes for something else (`DECEPTIVE`), what is only
 * another form of a plainer character, marks that are piled up or stand on no letter, and the letters of the minority script in a word of
 * mixed scripts. A word wholly in one script stays. A line feed stays one, behind `⏎`. Nothing is lost: two texts never give one value.
 *
 * What counts as unassigned, and of which script a letter is, follows the Unicode version of the runtime; runtimes that differ in it can
 * show a few rare characters differently, and an approval that was asked for by the other one does not match and is refused.
 * @returns `flagged` when something was escaped. A line feed alone is no reason.
 */
export function displayText(text: string): { value: string; flagged: boolean } {
  const foreign = foreignLetters(text);
  let value = '';
  let flagged = false;
  /** Marks since the last letter that is shown; more than allowed where there is none. */
  let marks = MARKS_MAX;
  let at = 0;
  for (const character of text) {
    const isMark = /^\p{M}$/u.test(character);
    marks = isMark ? marks + 1 : 0;
    if (character === '\n') {
      value += `${LINE_BREAK}\n`;
      marks = MARKS_MAX;
    } else if (deceives(character) || foreign.has(at) || (isMark && marks > MARKS_MAX)) {
      value += escapeUnit(character);
      flagged = true;
      marks = MARKS_MAX;
    } else {
      value += character;
      if (!isMark && !/^\p{L}$/u.test(character)) marks = MARKS_MAX;
    }
    at += character.length;
  }
  return { value, flagged };
}

/** Whether a character is escaped wherever it stands. */
function deceives(character: string): boolean {
  if (character >= ' ' && character <= '~') return false;
  if (DECEPTIVE.some((pattern) => pattern.test(character)) || RARE_LATIN.test(character)) return true;
  return character.normalize('NFKC') !== character && !ORDINARY_FORMS.test(character);
}

/** Where in the text, in UTF-16 units, letters stand whose script is not that of most letters of their word. */
function foreignLetters(text: string): Set<number> {
  const found = new Set<number>();
  for (const word of text.matchAll(WORD)) {
    const letters: { at: number; script: string }[] = [];
    let at = word.index;
    for (const character of word[0]) {
      if (/^\p{L}$/u.test(character)) letters.push({ at, script: scriptOf(character) });
      at += character.length;
    }
    const main = mainScript(letters.map((letter) => letter.script));
    for (const letter of letters) if (!mayMix(letter.script, main)) found.add(letter.at);
  }
  return found;
}

/** The script of most letters; Latin, or else the one that comes first, where several have as many. */
function mainScript(scripts: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const script of scripts) if (script !== 'shared') counts.set(script, (counts.get(script) ?? 0) + 1);
  const most = Math.max(0, ...counts.values());
  const leading = [...counts].filter(([, count]) => count === most).map(([script]) => script);
  return leading.includes('latin') ? 'latin' : (leading[0] ?? 'shared');
}

/** Latin stands beside East Asian letters in ordinary words, and none of those passes for one of Latin. */
function mayMix(script: string, main: string): boolean {
  const plain = ['latin', 'east_asian'];
  return script === main || script === 'shared' || (plain.includes(script) && plain.includes(main));
}

function scriptOf(letter: string): string {
  return SCRIPTS.find(([, pattern]) => pattern.test(letter))?.[0] ?? 'other';
}
