import type { HttpReply, JsonObject, ReadHttp } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { ORDER, REQUEST } from '../../../../testing/refund-case.ts';
import { createShop } from './shop.ts';

type Answer = HttpReply | { kind: 'unreachable'; reason: string; detail: string };
function reply(status: number, body: unknown): HttpReply {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return { kind: 'reply', status, headers: {}, body: new TextEncoder().encode(text) };
}
function shopWith(answer: Answer) {
  const asked: string[] = [];
  const http: ReadHttp = {
    get: (url) => {
      asked.push(url);
      return Promise.resolve(answer);
    },
  };
  return { shop: createShop({ url: 'http://shop.test', http, timeoutMs: 1_000 }), asked };
}

const READS = [
  [
    'read_request',
    { tenant_id: 'shop_north', request_id: 'case_2841' },
    REQUEST,
    'request_not_found',
    '/shop/tenants/shop_north/requests/case_2841',
  ],
  ['read_order', { order_id: 'order_913' }, ORDER, 'order_not_found', '/shop/orders/order_913'],
] as const;

describe.each(READS)('%s', (operation, args, facts, missing, path) => {
  const read = (answer: Answer) => shopWith(answer).shop.reads[operation](args);

  test('records the facts alone, with where they came from and their version', async () => {
    const { shop, asked } = shopWith(reply(200, { ...facts, version: 3, updated_at: 'x', secret: 'y' }));
    expect(await shop.reads[operation](args)).toMatchObject({
      kind: 'found',
      record: { source_ref: `shop:${path}`, version_marker: '3', facts },
    });
    expect(asked).toEqual([`http://shop.test${path}`]);
    expect(JSON.stringify(await read(reply(200, { ...facts, version: 3, secret: 'y' })))).not.toContain('secret');
  });

  test.each<[string, Answer, string]>([
    ['the shop does not know it', reply(404, { code: missing }), 'missing'],
    ['somebody else has no such page', reply(404, { code: 'route_not_found' }), 'failed'],
    ['a gateway has no such page', reply(404, '<h1>no</h1>'), 'failed'],
    ['the shop has an error', reply(500, { code: missing }), 'failed'],
    ['the shop redirects', reply(302, ''), 'failed'],
    ['the record has no version', reply(200, facts), 'failed'],
    ['a fact is of another form', reply(200, { ...facts, version: 1, currency: 7 }), 'failed'],
    ['an id could not be an action’s', reply(200, { ...facts, version: 1, order_id: 'order_913\u0000' }), 'failed'],
    ['no answer comes', { kind: 'unreachable', reason: 'timeout', detail: 'x' }, 'failed'],
  ])('when %s is %s', async (_, answer, kind) => {
    expect((await read(answer)).kind).toBe(kind);
  });

  test.each([
    ['U+0000', 'open\u0000', 'open⟦U+0000⟧'],
    ['half of a pair', 'open\ud83d', 'open⟦U+D83D⟧'],
    ['a letter that only looks like one', 'оpen', '⟦U+043E⟧pen'],
    ['more than a word', `${'x'.repeat(128)}tail`, `${'x'.repeat(128)}⟦+4⟧`],
    ['nothing', '', ''],
  ])('keeps a status with %s visibly, as a fact that equals none we know', async (_, status, kept) => {
    expect(await read(reply(200, { ...facts, version: status, status }))).toMatchObject({
      kind: 'found',
      record: { version_marker: kept, facts: { ...facts, status: kept } },
    });
  });

  test.each(['..', '', 'a/../b', 'a?b', 'ä'])('of %j never leaves its place', async (id) => {
    const { shop, asked } = shopWith(reply(200, facts));
    const strange = Object.fromEntries(Object.keys(args).map((name) => [name, id])) as JsonObject;
    await expect(Promise.resolve().then(() => shop.reads[operation](strange))).rejects.toThrow('identifier_charset');
    expect(asked).toEqual([]);
  });
});
