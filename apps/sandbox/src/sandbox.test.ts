import { describe, expect, test } from 'vitest';
import { startSandbox } from './sandbox.ts';
import { REFUND, sandboxUnderTest } from './testing/sandbox-under-test.ts';

describe('a sandbox', () => {
  test('says that it lives and that it is ready', async () => {
    const sandbox = await sandboxUnderTest();
    expect((await sandbox.call('GET', '/healthz')).json).toEqual({ status: 'ok' });
    expect((await sandbox.call('GET', '/readyz')).json).toEqual({ status: 'ready' });
    await sandbox.close();
  });

  test.each(['/', '/shop', '/admin/none', '/payments/none', '/shop/orders', '/%E0%A4%A'])(
    'answers %s, which it does not know, with a problem',
    async (path) => {
      const sandbox = await sandboxUnderTest();
      const seen = await sandbox.read(path);
      expect([seen.status, seen.json.code]).toEqual([404, 'route_not_found']);
      expect(seen.headers.get('content-type')).toBe('application/problem+json');
      await sandbox.close();
    },
  );

  test('shares nothing with another one', async () => {
    const [a, b] = await Promise.all([sandboxUnderTest(), sandboxUnderTest()]);
    await a.seed();
    expect((await b.call('GET', '/shop/orders/ord_1')).status).toBe(404);
    await Promise.all([a.close(), b.close()]);
  });

  test('takes its time from the clock that it is given', async () => {
    let now = Date.UTC(2030, 0, 1);
    const sandbox = await startSandbox({ clock: () => now });
    now += 5;
    const response = await fetch(`${sandbox.url}/admin/clock`);
    expect(await response.json()).toEqual({ now: '2030-01-01T00:00:00.005Z' });
    await sandbox.close();
  });

  test('refuses a port that is taken', async () => {
    const sandbox = await startSandbox();
    await expect(startSandbox({ port: sandbox.port })).rejects.toThrow('EADDRINUSE');
    await sandbox.close();
  });

  test('cuts a hanging answer when it closes, and may be closed twice', async () => {
    const sandbox = await sandboxUnderTest();
    await sandbox.seed({ fault: { kind: 'hang_after_accept', hold_ms: 60_000 } });
    const hanging = sandbox.refund(REFUND);
    await sandbox.ledgerWhen(([entry]) => entry?.outcome === 'accepted');
    const started = performance.now();
    await Promise.all([expect(hanging).rejects.toThrow('fetch failed'), sandbox.close(), sandbox.close()]);
    expect(performance.now() - started).toBeLessThan(10_000);
    await expect(sandbox.call('GET', '/healthz')).rejects.toThrow('fetch failed');
  });

  test('lets running requests finish while it drains', async () => {
    const sandbox = await sandboxUnderTest();
    await sandbox.seed({ fault: { kind: 'hang_after_accept', hold_ms: 150 } });
    const running = sandbox.refund(REFUND);
    await sandbox.ledgerWhen(([entry]) => entry?.outcome === 'accepted');
    const started = performance.now();
    await sandbox.close({ drain_ms: 5000 });
    expect((await running).status).toBe(201);
    expect(performance.now() - started).toBeLessThan(4000);
  });
});
