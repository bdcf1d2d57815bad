import { Hono } from 'hono';
import { answerRead } from '../faults/answer-read.ts';
import { jsonAnswer, problemAnswer } from '../http/answer.ts';
import type { NodeBinding } from '../http/binding.ts';
import type { World } from '../world.ts';
import { orderView, requestKey, requestView } from './shop.ts';

/** The shop: two reads. */
export function shopRoutes(world: World): Hono<NodeBinding> {
  const app = new Hono<NodeBinding>();

  app.get('/tenants/:tenant_id/requests/:request_id', async (c) => {
    const request = world.requests.get(requestKey(c.req.param('tenant_id'), c.req.param('request_id')));
    const order = request && world.orders.get(request.order_id);
    const subject = { endpoint: 'shop_request', owner_id: order?.payment_id ?? null, latency_ms: 0 } as const;
    return answerRead(c, world, subject, () =>
      request === undefined
        ? problemAnswer(404, 'request_not_found', 'This tenant has no such request.')
        : jsonAnswer(200, requestView(request)),
    );
  });

  app.get('/orders/:order_id', async (c) => {
    const order = world.orders.get(c.req.param('order_id'));
    const subject = { endpoint: 'shop_order', owner_id: order?.payment_id ?? null, latency_ms: 0 } as const;
    return answerRead(c, world, subject, () =>
      order === undefined
        ? problemAnswer(404, 'order_not_found', 'There is no such order.')
        : jsonAnswer(200, orderView(order, world.payments.get(order.payment_id), world.clock.now())),
    );
  });

  return app;
}
