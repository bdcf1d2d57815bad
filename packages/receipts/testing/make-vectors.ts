// Writes docs/reference/receipt-vectors: `npm run vectors` in packages/receipts. The passkeys sign with fresh randomness, so every run gives
// other signatures, and the same answers. Format what it wrote: `npx biome check --write docs/reference/receipt-vectors`.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { ORIGIN, TRUSTED_TEXT } from './receipt-story.ts';
import { makeVectors } from './receipt-vectors.ts';

const folder = new URL('../../../docs/reference/receipt-vectors/', import.meta.url);
const write = (name: string, value: unknown) =>
  writeFileSync(new URL(`${name}.json`, folder), `${JSON.stringify(value, null, 2)}\n`);

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const vectors = await makeVectors();
for (const { name, envelope } of vectors) write(name, envelope);
write('keys', JSON.parse(TRUSTED_TEXT));
write('index', {
  origin: ORIGIN,
  keys: 'keys.json',
  vectors: vectors.map(({ name, about, fails, absent }) => ({ file: `${name}.json`, about, fails, absent })),
});
