import { Hono } from 'hono';
import { z } from 'zod';
import { answerRead } from '../faults/answer-read.ts';
import { jsonAnswer, problemAnswer } from '../http/answer.ts';
import type { NodeBinding } from '../http/binding.ts';
import { describeIssues } from '../http/body.ts';
import { respond } from '../http/delivery.ts';
import { Id } from '../values.ts';
import type { World } from '../world.ts';
import { refuseAccess } from './authority.ts';
import { createRefund, paymentNotFound } from './create-refund.ts';
import { listRefunds, PAGE_SIZE_MAX } from './list-refunds.ts';
import { isVisible, paymentView, refundView } from './payment.ts';

const ListQuery = z.strictObject({
  payment_id: Id,
  /** Id of the last refund of the page before. */
  after: Id.optional(),
  limit: z
    .string()
    .regex(/^[0-9]{1,3}$/)
    .transform(Number)
    .pipe(z.int().min(1).max(PAGE_SIZE_MAX))
    .optional(),
});

/** The payment provider: one write, three reads. */
export function providerRoutes(world: World): Hono<NodeBinding> {
  const app = new Hono<NodeBinding>();

  // The one write keeps a ledger of refused access too, hence judges access itself.
  app.post('/refunds', async (c) => createRefund(c, world));

  app.use(async (c, next) => {
    const reads = c.req.method === 'GET' || c.req.method === 'HEAD';
    const noAccess = refuseAccess(c.req.header('authorization'), reads ? 'read' : 'write');
    if (noAccess !== null) return respond(c, noAccess);
    return next();
  });

  app.get('/refunds', async (c) => {
    const query = ListQuery.safeParse(c.req.query());
    if (!query.success) return respond(c, problemAnswer(400, 'invalid_request', describeIssues(query.error)));
    const { payment_id, after, limit } = query.data;
    const payment = world.payments.get(payment_id);
    const subject = { endpoint: 'refund_list', owner_id: payment_id, latency_ms: payment?.latency_ms ?? 0 } as const;
    return answerRead(c, world, subject, () => {
      if (payment === undefined) return paymentNotFound();
      return listRefunds(payment, { after, limit: limit ?? PAGE_SIZE_MAX }, world.clock.now());
    });
  });

  app.get('/refunds/:refund_id', async (c) => {
    const refund = world.refunds.get(c.req.param('refund_id'));
    const payment = refund && world.payments.get(refund.payment_id);
    const subject = {
      endpoint: 'refund',
      owner_id: refund?.payment_id ?? null,
      latency_ms: payment?.latency_ms ?? 0,
    } as const;
    return answerRead(c, world, subject, () => {
      const now = world.clock.now();
      return refund === undefined || !isVisible(refund, now, 'reader')
        ? problemAnswer(404, 'refund_not_found', 'There is no such refund.')
        : jsonAnswer(200, refundView(refund, now));
    });
  });

  app.get('/payments/:payment_id', async (c) => {
    const paymentId = c.req.param('payment_id');
    const payment = world.payments.get(paymentId);
    const subject = { endpoint: 'payment', owner_id: paymentId, latency_ms: payment?.latency_ms ?? 0 } as const;
    return answerRead(c, world, subject, () =>
      payment === undefined ? paymentNotFound() : jsonAnswer(200, paymentView(payment, world.clock.now(), 'reader')),
    );
  });

  return app;
}
