import { Hono } from 'hono';
import { z } from 'zod';
import { customerNotFound, MEMO_LENGTH_MAX } from '../credits/create-grant.ts';
import { grantEffectView } from '../credits/credit-books.ts';
import { CreditFaultList, HONEST_PLAN } from '../faults/catalogue.ts';
import { jsonAnswer, problemAnswer } from '../http/answer.ts';
import type { NodeBinding } from '../http/binding.ts';
import { describeIssues } from '../http/body.ts';
import { respond } from '../http/delivery.ts';
import { Currency, Id, PositiveMinorUnits } from '../values.ts';
import type { World } from '../world.ts';
import { withBody, withQuery } from './with-input.ts';

/** A grant made by a person in the provider's own screens. */
const HandGrant = z.strictObject({
  customer_id: Id,
  amount: PositiveMinorUnits,
  currency: Currency,
  memo: z.string().max(MEMO_LENGTH_MAX).default(''),
});
const LedgerQuery = z.strictObject({
  customer_id: Id.optional(),
  after_seq: z
    .string()
    .regex(/^[0-9]{1,9}$/)
    .transform(Number)
    .optional(),
});
const EffectsQuery = z.strictObject({ customer_id: Id.optional() });
const FaultQuery = z.strictObject({ cycle: z.enum(['true', 'false']).default('false') });

/** The hand behind the credits: faults, the true books, and grants made elsewhere. Below /admin/credits. */
export function creditAdminRoutes(world: World): Hono<NodeBinding> {
  const { credits } = world;
  const app = new Hono<NodeBinding>();

  app.post('/grants', async (c) =>
    withBody(c, HandGrant, (asked) => {
      if (!credits.customers.has(asked.customer_id)) return customerNotFound();
      const grant = credits.book({ ...asked, request_seq: null }, world.clock.now(), HONEST_PLAN.booking);
      return jsonAnswer(201, grantEffectView(grant));
    }),
  );

  app.get('/faults/:customer_id', (c) => respond(c, jsonAnswer(200, credits.faults.list(c.req.param('customer_id')))));

  app.put('/faults/:customer_id', async (c) => {
    const query = FaultQuery.safeParse(c.req.query());
    if (!query.success) return respond(c, problemAnswer(400, 'invalid_request', describeIssues(query.error)));
    return withBody(c, CreditFaultList, (faults) => {
      credits.faults.arm(c.req.param('customer_id'), faults, query.data.cycle === 'true');
      return jsonAnswer(200, credits.faults.list(c.req.param('customer_id')));
    });
  });

  app.delete('/faults/:customer_id', (c) => {
    credits.faults.disarm(c.req.param('customer_id'));
    return c.body(null, 204);
  });

  app.get('/ledger', (c) =>
    withQuery(c, LedgerQuery, (filter) => jsonAnswer(200, { entries: credits.ledger.list(filter) })),
  );

  app.get('/effects', (c) =>
    withQuery(c, EffectsQuery, ({ customer_id }) =>
      jsonAnswer(200, { effects: credits.list(customer_id).map(grantEffectView) }),
    ),
  );

  return app;
}
