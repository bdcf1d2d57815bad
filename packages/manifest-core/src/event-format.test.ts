import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const page = readFileSync(new URL('../../../docs/reference/event-format.md', import.meta.url), 'utf8');
const sha256 = (text: string) => `sha256:${createHash('sha256').update(text, 'utf8').digest('hex')}`;

test('the published vector can be verified from the page alone, with nothing of ours', () => {
  const blocks = [...page.matchAll(/```text\n([\s\S]*?)\n```/g)].map(([, text]) => text ?? '');
  const hashes = [...page.matchAll(/Event \d hashes to `(sha256:[0-9a-f]{64})`/g)].map(([, hash]) => hash ?? '');
  const [payloads = '', ...preImages] = blocks;
  expect(preImages).toHaveLength(2);
  expect(hashes).toHaveLength(2);

  let previous = '-';
  for (const [index, preImage] of preImages.entries()) {
    const lines = preImage.split('\n');
    expect(lines).toHaveLength(10);
    expect(lines[0]).toBe('cs.event.v1');
    expect(lines[2]).toBe(String(index + 1));
    expect(lines[8]).toBe(sha256(payloads.split('\n')[index] ?? ''));
    expect(lines[9]).toBe(previous);
    previous = hashes[index] ?? '';
    expect(sha256(preImage)).toBe(previous);
  }
});
