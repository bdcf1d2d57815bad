import { createHmac } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { WebhookEvent } from '../index.ts';
import { REFUND, type SandboxUnderTest, START, sandboxUnderTest } from '../testing/sandbox-under-test.ts';

interface Delivery {
  readonly signature: string;
  readonly body: string;
  readonly event: WebhookEvent;
}

let sandbox: SandboxUnderTest;
let receiver: Server;
let deliveries: Delivery[];
/** What the receiver answers with; null: nothing, ever. */
let answer: number | null;

beforeAll(async () => {
  sandbox = await sandboxUnderTest();
});
afterAll(async () => sandbox.close());
beforeEach(async () => {
  deliveries = [];
  answer = 200;
  receiver = createServer((incoming, outgoing) => {
    let body = '';
    incoming.on('data', (chunk: Buffer) => (body += chunk.toString('utf8')));
    incoming.on('end', () => {
      const event = JSON.parse(body) as WebhookEvent;
      deliveries.push({ signature: String(incoming.headers['sandbox-signature']), body, event });
      if (answer !== null) outgoing.writeHead(answer).end();
    });
  });
  await new Promise<void>((resolve) => {
    receiver.listen(0, '127.0.0.1', resolve);
  });
  await sandbox.reset();
  await sandbox.seed();
  await sandbox.call('PUT', '/admin/settings', { webhook_url: urlOf(receiver) });
});
afterEach(async () => {
  receiver.closeAllConnections();
  await new Promise((resolve) => {
    receiver.close(resolve);
  });
});

function urlOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks?from=sandbox`;
}

async function arrived(count: number): Promise<Delivery[]> {
  for (let look = 0; look < 400 && deliveries.length < count; look += 1) await sleep(5);
  expect(deliveries).toHaveLength(count);
  return deliveries;
}

const typesOf = (seen: readonly Delivery[]) => seen.map(({ event }) => event.type);

describe('a webhook', () => {
  test('tells of a refund that was made, signed over its time and its bytes', async () => {
    const made = await sandbox.refund(REFUND);
    const [delivery] = await arrived(1);
    expect(delivery?.event).toEqual({
      event_id: 'evt_00000001',
      type: 'refund.created',
      created_at: '2026-01-01T00:00:00.000Z',
      refund: made.json,
    });
    const hmac = createHmac('sha256', 'whsec_sandbox')
      .update(`${START / 1000}.${delivery?.body}`)
      .digest('hex');
    expect(delivery?.signature).toBe(`t=${START / 1000},v1=${hmac}`);
  });

  test.each([
    ['pending_then_succeeded', 'refund.updated', 'succeeded'],
    ['pending_then_failed', 'refund.failed', 'failed'],
  ] as const)('after %s tells of both statuses, each as it was and in its time', async (kind, type, status) => {
    await sandbox.arm({ kind, after_ms: 60_000 });
    await sandbox.refund(REFUND);
    await arrived(1);
    await sandbox.advance(59_999);
    await sandbox.advance(1);
    const [first, second] = await arrived(2);
    expect(first?.event).toMatchObject({ type: 'refund.created', refund: { status: 'pending' } });
    expect(second?.event).toMatchObject({ type, created_at: '2026-01-01T00:01:00.000Z', refund: { status } });
    expect(second?.event.event_id).not.toBe(first?.event.event_id);
  });

  test('tells of a status that was given by hand, and never of one that this dropped', async () => {
    await sandbox.arm({ kind: 'pending_then_succeeded', after_ms: 1_000 });
    const { json } = await sandbox.refund(REFUND);
    await arrived(1);
    await sandbox.call('PATCH', `/admin/refunds/${String(json.refund_id)}`, { status: 'failed' });
    await arrived(2);
    await sandbox.advance(5_000);
    await sandbox.refund({ ...REFUND, amount: 1 }, { key: 'b' });
    expect(typesOf(await arrived(3))).toEqual(['refund.created', 'refund.failed', 'refund.created']);
  });

  test('comes late by the clock, with the refund as it was then', async () => {
    await sandbox.arm([
      { kind: 'webhook_late', after_ms: 10_000 },
      { kind: 'pending_then_succeeded', after_ms: 1_000 },
    ]);
    await sandbox.refund(REFUND);
    await sandbox.advance(1_000);
    await arrived(1);
    await sandbox.advance(9_000);
    const seen = await arrived(2);
    expect(typesOf(seen)).toEqual(['refund.updated', 'refund.created']);
    expect(seen[1]?.event).toMatchObject({ created_at: '2026-01-01T00:00:00.000Z', refund: { status: 'pending' } });
    // Signed when it was sent, so that it passes a tolerance that counts from then.
    expect(seen[1]?.signature).toContain(`t=${START / 1000 + 10},`);
  });

  test('comes twice as the same event', async () => {
    await sandbox.arm({ kind: 'webhook_twice' });
    await sandbox.refund(REFUND);
    const [first, second] = await arrived(2);
    expect(second).toEqual(first);
  });

  test('is not sent while nobody is to be told, and not kept for later', async () => {
    await sandbox.call('PUT', '/admin/settings', { webhook_url: null });
    await sandbox.refund(REFUND);
    await sandbox.call('PUT', '/admin/settings', { webhook_url: urlOf(receiver) });
    await sandbox.refund({ ...REFUND, amount: 1 }, { key: 'b' });
    expect((await arrived(1))[0]?.event.refund.amount).toBe(1);
  });

  test('follows real time too', async () => {
    const real = await sandboxUnderTest(Date.now);
    await real.seed();
    await real.call('PUT', '/admin/settings', { webhook_url: urlOf(receiver) });
    await real.arm({ kind: 'pending_then_succeeded', after_ms: 60 });
    await real.refund(REFUND);
    expect(typesOf(await arrived(2))).toEqual(['refund.created', 'refund.updated']);
    await real.close();
  });
});

describe('a receiver', () => {
  test('that never answers delays nobody, and is left alone when the sandbox closes', async () => {
    answer = null;
    const other = await sandboxUnderTest();
    await other.seed();
    await other.call('PUT', '/admin/settings', { webhook_url: urlOf(receiver) });
    const started = performance.now();
    expect((await other.refund(REFUND)).status).toBe(201);
    await arrived(1);
    await other.close();
    expect(performance.now() - started).toBeLessThan(3_000);
  });

  test('that is away changes nothing', async () => {
    await sandbox.call('PUT', '/admin/settings', { webhook_url: 'http://127.0.0.1:9/gone' });
    expect((await sandbox.refund(REFUND)).status).toBe(201);
    expect((await sandbox.refund({ ...REFUND, amount: 1 }, { key: 'b' })).status).toBe(201);
  });

  test('that answers with an error is not asked again', async () => {
    answer = 500;
    await sandbox.refund(REFUND);
    await arrived(1);
    await sleep(50);
    await arrived(1);
  });

  test.each(['https://example.test', 'file:///etc/passwd', 'no url', ''])('at %j is refused', async (webhook_url) => {
    expect((await sandbox.call('PUT', '/admin/settings', { webhook_url })).status).toBe(400);
  });
});
