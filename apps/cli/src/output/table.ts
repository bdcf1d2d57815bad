import Table from 'cli-table3';

/** A table without frames: aligned columns that can be cut, pasted and grepped. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const none = Object.fromEntries(
    ['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right'].map((place) => [
      place,
      '',
    ]),
  );
  const made = new Table({
    head: [...head],
    chars: {
      ...none,
      left: '',
      'left-mid': '',
      mid: '',
      'mid-mid': '',
      right: '',
      'right-mid': '',
      middle: '  ',
    },
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
  });
  made.push(...rows.map((row) => row.map(printable)));
  return made
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n');
}

/**
 * Text from outside as a terminal may show it: control characters, which could move the cursor or recolour what an approver reads, and
 * characters that turn the writing direction are spelled out.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    const point = character.codePointAt(0) ?? 0;
    return `\\u{${point.toString(16)}}`;
  });
}
