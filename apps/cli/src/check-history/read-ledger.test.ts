import { createServer } from 'node:http';
import { startSandbox } from '@counterstamp/sandbox';
import { expect, onTestFinished, test } from 'vitest';
import { CliFailure } from '../failure.ts';
import { readLedger } from './read-ledger.ts';

test('reads the ledger of a sandbox, requests and effects of both providers', async () => {
  const sandbox = await startSandbox();
  onTestFinished(() => sandbox.close());
  const post = (path: string, body: object) =>
    fetch(`${sandbox.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer sk_sandbox', 'idempotency-key': 'k' },
      body: JSON.stringify(body),
    });
  const seed = { tenant_id: 't', request_id: 'r', order_id: 'o', amount_minor: 500, currency: 'USD' };
  await post('/admin/cases', seed);
  await post('/payments/refunds', { payment_id: 'pay_o', amount: 500, currency: 'USD', reason: 'r' });
  await post('/credits/grants', { customer_id: 'cus_o', amount: 500, currency: 'USD', memo: 'm' });
  const ledger = await readLedger(`${sandbox.url}/`);
  expect(ledger.requests.map(({ provider }) => provider)).toEqual(['sandbox-payments', 'legacy-credits']);
  expect(ledger.effects).toMatchObject([{ fields: { destination: 'pay_o' } }, { fields: { customer_id: 'cus_o' } }]);
});

test.each([
  ['something else answers', 200, '{"requests":[]}', 'it is no ledger of this version'],
  ['it is no JSON', 200, '<h1>', 'Unexpected token'],
  ['there is no such route', 404, '{}', 'it answered 404'],
])('when %s, it says so and what to do', async (_, status, body, why) => {
  const server = createServer((_request, response) => response.writeHead(status).end(body));
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve());
  });
  onTestFinished(() => void server.close());
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
  const failure = await readLedger(url).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(CliFailure);
  expect(failure).toMatchObject({
    message: expect.stringContaining(why),
    next: expect.stringContaining('--no-ledger'),
  });
});

test('when nobody answers, it says so', async () => {
  await expect(readLedger('http://127.0.0.1:1')).rejects.toThrow(/ECONNREFUSED|bad port/);
});
