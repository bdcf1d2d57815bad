import { Hono } from 'hono';
import { z } from 'zod';
import { answerRead } from '../faults/answer-read.ts';
import { type Answer, jsonAnswer, problemAnswer } from '../http/answer.ts';
import type { NodeBinding } from '../http/binding.ts';
import { describeIssues } from '../http/body.ts';
import { respond } from '../http/delivery.ts';
import { refuseAccess } from '../provider/authority.ts';
import { Id } from '../values.ts';
import type { World } from '../world.ts';
import { createGrant, customerNotFound } from './create-grant.ts';
import { grantView } from './credit-books.ts';

/** Grants on a page at most. */
const PAGE_SIZE_MAX = 100;

const ListQuery = z.strictObject({
  customer_id: Id,
  /** Id of the last grant of the page before. */
  after: Id.optional(),
  limit: z
    .string()
    .regex(/^[0-9]{1,3}$/)
    .transform(Number)
    .pipe(z.int().min(1).max(PAGE_SIZE_MAX))
    .default(PAGE_SIZE_MAX),
});

/** The legacy provider: one write that always executes, one look-up from a replica that lags. */
export function creditRoutes(world: World): Hono<NodeBinding> {
  const app = new Hono<NodeBinding>();

  // The write keeps a ledger of refused access too, hence judges access itself.
  app.post('/grants', async (c) => createGrant(c, world));

  app.get('/grants', async (c) => {
    const noAccess = refuseAccess(c.req.header('authorization'), 'read');
    if (noAccess !== null) return respond(c, noAccess);
    const query = ListQuery.safeParse(c.req.query());
    if (!query.success) return respond(c, problemAnswer(400, 'invalid_request', describeIssues(query.error)));
    const subject = { endpoint: 'grant_list', owner_id: query.data.customer_id, latency_ms: 0 } as const;
    return answerRead(c, world, subject, () => listGrants(world, query.data), world.credits.faults);
  });

  return app;
}

/** One page of a customer's grants, newest first, as the replica has them. */
function listGrants(world: World, page: z.infer<typeof ListQuery>): Answer {
  const { credits, clock } = world;
  if (!credits.customers.has(page.customer_id)) return customerNotFound();
  const shown = credits.replica(page.customer_id, clock.now());
  const cursor = page.after === undefined ? -1 : shown.findIndex((grant) => grant.grant_id === page.after);
  if (page.after !== undefined && cursor === -1)
    return problemAnswer(400, 'cursor_unknown', 'This customer has no grant with the id in `after`.');
  const rest = shown.slice(cursor + 1);
  return jsonAnswer(200, { grants: rest.slice(0, page.limit).map(grantView), has_more: rest.length > page.limit });
}
