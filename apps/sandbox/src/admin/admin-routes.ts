import { Hono } from 'hono';
import { z } from 'zod';
import { isoTime } from '../clock.ts';
import { FaultList } from '../faults/catalogue.ts';
import { jsonAnswer, problemAnswer } from '../http/answer.ts';
import type { NodeBinding, NodeContext } from '../http/binding.ts';
import { describeIssues } from '../http/body.ts';
import { respond } from '../http/delivery.ts';
import { paymentNotFound } from '../provider/create-refund.ts';
import { decideRefund } from '../provider/decide-refund.ts';
import { effectView, paymentView } from '../provider/payment.ts';
import { orderView, requestKey, requestView } from '../shop/shop.ts';
import { DurationMs, Id, Metadata, PositiveMinorUnits, Reason } from '../values.ts';
import type { World } from '../world.ts';
import { creditAdminRoutes } from './credit-admin-routes.ts';
import {
  editOrder,
  editPayment,
  editRefund,
  editRequest,
  OrderEdit,
  PaymentEdit,
  RefundEdit,
  RequestEdit,
} from './edit-facts.ts';
import { providerHistory } from './provider-history.ts';
import { CaseSeed, seedCase } from './seed-case.ts';
import { withBody, withQuery } from './with-input.ts';

/** A refund made by a person in the provider's dashboard. */
const HandRefund = z.strictObject({
  payment_id: Id,
  /** Minor units; left out it means the whole rest. */
  amount: PositiveMinorUnits.optional(),
  reason: Reason.default('requested_by_customer'),
  metadata: Metadata.default({}),
});

const Settings = z
  .strictObject({
    key_retention_ms: DurationMs.optional(),
    credits_lag_ms: DurationMs.optional(),
    /** null: nobody is told. */
    webhook_url: z
      .url({ protocol: /^http$/ })
      .nullable()
      .optional(),
  })
  .refine((settings) => Object.keys(settings).length > 0, 'name a setting');
const ClockAdvance = z.strictObject({ advance_ms: DurationMs });
const FaultQuery = z.strictObject({ cycle: z.enum(['true', 'false']).default('false') });
const LedgerQuery = z.strictObject({
  payment_id: Id.optional(),
  after_seq: z
    .string()
    .regex(/^[0-9]{1,9}$/)
    .transform(Number)
    .optional(),
});
const EffectsQuery = z.strictObject({ payment_id: Id.optional() });

/** The hand behind the scene: seeds, faults, the clock, and the true books. Without access control, for loopback. */
export function adminRoutes(world: World): Hono<NodeBinding> {
  const app = new Hono<NodeBinding>();
  addFactRoutes(app, world);
  addFaultRoutes(app, world);
  addBookRoutes(app, world);
  app.route('/credits', creditAdminRoutes(world));
  return app;
}

function addFactRoutes(app: Hono<NodeBinding>, world: World): void {
  app.post('/cases', async (c) => withBody(c, CaseSeed, (seed) => seedCase(world, seed)));

  app.patch('/requests/:tenant_id/:request_id', async (c) =>
    withBody(c, RequestEdit, (edit) => {
      const request = world.requests.get(requestKey(c.req.param('tenant_id'), c.req.param('request_id')));
      if (request === undefined) return problemAnswer(404, 'request_not_found', 'This tenant has no such request.');
      editRequest(request, edit, world.clock.now());
      return jsonAnswer(200, requestView(request));
    }),
  );

  app.patch('/orders/:order_id', async (c) =>
    withBody(c, OrderEdit, (edit) => {
      const order = world.orders.get(c.req.param('order_id'));
      if (order === undefined) return problemAnswer(404, 'order_not_found', 'There is no such order.');
      const now = world.clock.now();
      editOrder(order, edit, world.payments, now);
      return jsonAnswer(200, orderView(order, world.payments.get(order.payment_id), now));
    }),
  );

  app.patch('/payments/:payment_id', async (c) =>
    withBody(c, PaymentEdit, (edit) => {
      const payment = world.payments.get(c.req.param('payment_id'));
      if (payment === undefined) return paymentNotFound();
      const now = world.clock.now();
      editPayment(payment, edit, now);
      return jsonAnswer(200, { ...paymentView(payment, now, 'reader'), latency_ms: payment.latency_ms });
    }),
  );

  app.post('/refunds', async (c) =>
    withBody(c, HandRefund, (asked) => {
      const payment = world.payments.get(asked.payment_id);
      if (payment === undefined) return paymentNotFound();
      const now = world.clock.now();
      const decision = decideRefund(payment, { amount: asked.amount, currency: payment.currency }, now);
      if (decision.kind === 'refused') return decision.answer;
      const { reason, metadata } = asked;
      const toBook = { amount: decision.amount, currency: payment.currency, reason, metadata };
      const refund = world.bookRefund(payment, { ...toBook, idempotency_key: null, request_seq: null }, now);
      return jsonAnswer(201, effectView(refund, now));
    }),
  );

  app.patch('/refunds/:refund_id', async (c) =>
    withBody(c, RefundEdit, (edit) => {
      const refund = world.refunds.get(c.req.param('refund_id'));
      if (refund === undefined) return problemAnswer(404, 'refund_not_found', 'There is no such refund.');
      const now = world.clock.now();
      world.webhooks.announce(refund, editRefund(refund, edit, now));
      return jsonAnswer(200, effectView(refund, now));
    }),
  );
}

function addFaultRoutes(app: Hono<NodeBinding>, world: World): void {
  const cycles = (c: NodeContext): boolean => c.req.query('cycle') === 'true';

  app.get('/faults/:payment_id', (c) => respond(c, jsonAnswer(200, world.faults.list(c.req.param('payment_id')))));

  app.put('/faults/:payment_id', async (c) => {
    const query = FaultQuery.safeParse(c.req.query());
    if (!query.success) return respond(c, problemAnswer(400, 'invalid_request', describeIssues(query.error)));
    return withBody(c, FaultList, (faults) => {
      world.faults.arm(c.req.param('payment_id'), faults, cycles(c));
      return jsonAnswer(200, world.faults.list(c.req.param('payment_id')));
    });
  });

  app.delete('/faults/:payment_id', (c) => {
    world.faults.disarm(c.req.param('payment_id'));
    return c.body(null, 204);
  });

  app.get('/faults-default', (c) => respond(c, jsonAnswer(200, world.faults.list(null))));

  app.put('/faults-default', async (c) => {
    const query = FaultQuery.safeParse(c.req.query());
    if (!query.success) return respond(c, problemAnswer(400, 'invalid_request', describeIssues(query.error)));
    return withBody(c, FaultList, (faults) => {
      world.faults.armDefault(faults, cycles(c));
      return jsonAnswer(200, world.faults.list(null));
    });
  });

  app.delete('/faults-default', (c) => {
    world.faults.disarmDefault();
    return c.body(null, 204);
  });

  app.put('/settings', async (c) =>
    withBody(c, Settings, (settings) => {
      if (settings.key_retention_ms !== undefined) world.keyRetentionMs = settings.key_retention_ms;
      if (settings.credits_lag_ms !== undefined) world.credits.lagMs = settings.credits_lag_ms;
      if (settings.webhook_url !== undefined) world.webhooks.url = settings.webhook_url;
      return jsonAnswer(200, {
        key_retention_ms: world.keyRetentionMs,
        credits_lag_ms: world.credits.lagMs,
        webhook_url: world.webhooks.url,
      });
    }),
  );
}

function addBookRoutes(app: Hono<NodeBinding>, world: World): void {
  app.get('/ledger', (c) =>
    withQuery(c, LedgerQuery, (filter) => jsonAnswer(200, { entries: world.ledger.list(filter) })),
  );

  app.get('/effects', (c) =>
    withQuery(c, EffectsQuery, ({ payment_id }) => {
      const now = world.clock.now();
      const refunds = payment_id === undefined ? [...world.refunds.values()] : world.payments.get(payment_id)?.refunds;
      return jsonAnswer(200, { effects: (refunds ?? []).map((refund) => effectView(refund, now)) });
    }),
  );

  app.get('/history', (c) => respond(c, jsonAnswer(200, providerHistory(world))));

  app.get('/clock', (c) => respond(c, jsonAnswer(200, { now: isoTime(world.clock.now()) })));

  app.post('/clock', async (c) =>
    withBody(c, ClockAdvance, ({ advance_ms }) => {
      const now = isoTime(world.clock.advance(advance_ms));
      world.webhooks.catchUp();
      return jsonAnswer(200, { now });
    }),
  );

  app.post('/reset', (c) => {
    world.reset();
    return c.body(null, 204);
  });
}
