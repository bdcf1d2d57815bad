import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runCommand } from '../../testing/run-command.ts';
import { EXIT } from '../failure.ts';

const RUN = 'run_0191c0de-0000-7000-8000-000000000000';
const RECEIPT = { payloadType: 'application/x', payload: 'e30=', signatures: [{ keyid: 'k', sig: 'c2ln' }] };

let folder: string;
let server: Server;
let asked: (string | undefined)[];
let access: string[];
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'cs-receipt-'));
  asked = [];
  server = createServer((request, response) => {
    asked.push(request.url);
    response.setHeader('content-type', 'application/json').end(JSON.stringify(RECEIPT));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  access = ['--url', `http://127.0.0.1:${(server.address() as AddressInfo).port}`, '--key', 'csk_x'];
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true });
});

test('a receipt is printed as it was signed, with everything or without the facts', async () => {
  const { printed } = await runCommand('receipt', RUN, ...access);
  expect(JSON.parse(printed)).toEqual(RECEIPT);
  await runCommand('receipt', RUN, '--no-disclose', ...access);
  expect(asked).toEqual([`/v1/runs/${RUN}/receipt?disclose=all`, `/v1/runs/${RUN}/receipt?disclose=none`]);
});

test('--out writes a file for its owner alone, and never over another', async () => {
  const out = path.join(folder, 'receipt.json');
  await runCommand('receipt', RUN, '--out', out, ...access);
  expect(JSON.parse(await readFile(out, 'utf8'))).toEqual(RECEIPT);
  expect((await stat(out)).mode & 0o777).toBe(0o600);
  const error: unknown = await runCommand('receipt', RUN, '--out', out, ...access).catch((e: unknown) => e);
  expect(error).toMatchObject({ name: 'CliFailure', exit: EXIT.usage });
});
