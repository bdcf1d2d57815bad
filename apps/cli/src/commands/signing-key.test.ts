import { Readable } from 'node:stream';
import { parseTrustedKeys } from '@counterstamp/signatures';
import { afterEach, expect, test, vi } from 'vitest';
import { runCommand } from '../../testing/run-command.ts';
import { EXIT } from '../failure.ts';

afterEach(() => vi.restoreAllMocks());

function onStandardInput(text: string): void {
  const stream = Readable.from([Buffer.from(text)]) as typeof process.stdin;
  vi.spyOn(process, 'stdin', 'get').mockReturnValue(stream);
}

test('a key that was made is one line, and its public half is an entry of a set that a verifier takes', async () => {
  const made = await runCommand('signing-key', 'create');
  expect(made.printed).toMatch(/^\{[^\n]*\}\n$/);
  onStandardInput(made.printed);
  const { printed } = await runCommand('signing-key', 'public', '--purposes', 'credential,receipt');
  expect(printed).not.toContain('"d"');
  const trusted = parseTrustedKeys(`{"keys": [${printed}]}`);
  const id = trusted.published.keys[0]?.kid ?? '';
  const purposes = (['credential', 'receipt', 'checkpoint'] as const).filter((one) => trusted.find(id, one));
  expect(purposes).toEqual(['credential', 'receipt']);
});

test('what is no private key is refused without being shown', async () => {
  onStandardInput('{"kty":"OKP","crv":"Ed25519","x":"secret"}');
  const error: unknown = await runCommand('signing-key', 'public', '--purposes', 'receipt').catch((e: unknown) => e);
  expect(error).toMatchObject({ name: 'CliFailure', exit: EXIT.usage });
  expect(String(error)).not.toContain('secret');
});
