import { expect, test } from 'vitest';
import { stopReason } from './stop-reasons.ts';

test('a stop reason never holds half of a pair, wherever a long detail is cut: it could not be recorded', () => {
  for (const pad of [498, 499, 500]) {
    const { message } = stopReason('invalid_input', `${'x'.repeat(pad)}😀 and more`);
    expect(message.isWellFormed()).toBe(true);
  }
});
