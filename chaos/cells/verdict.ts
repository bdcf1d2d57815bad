import { createClient, ProblemError } from '@counterstamp/api-contract';
import { createApiKey } from '@counterstamp/manifest-store';
import { poll, type ServiceProcess } from '../../testing/fleet.ts';
import { testIds } from '../../testing/test-ids.ts';
import type { Deed } from '../failpoint-folder.ts';
import type { ChaosFleet } from '../harness.ts';
import type { Cell } from '../matrix.ts';
import { type AtPoint, askFor, seedFor } from './ways.ts';

/** Milliseconds for a form to be answered once nothing holds it. */
const ANSWER_MS = 20_000;

/** A parked run, and a person's form on it that stands between its read and its commit. */
export async function verdictAtPoint(chaos: ChaosFleet, cell: Cell, deed: Deed): Promise<AtPoint> {
  const { fleet } = chaos;
  const seeded = await seedFor(chaos, cell);
  const run_id = await askFor(fleet, cell, seeded);
  await fleet.approve(run_id);
  const { revision } = await fleet.until(run_id, (run) => run.parked_reason !== null);
  const { key } = await createApiKey(chaos.sql(), testIds, {
    tenant_id: 'shop_north',
    name: 'operator',
    role: 'operator',
  });

  const forms: AtPoint['forms'] = [];
  let open = 0;
  const submit = async ({ port }: ServiceProcess): Promise<void> => {
    open += 1;
    const client = createClient({ baseUrl: `http://127.0.0.1:${port}`, key, fetch });
    const body = { verdict: 'still_unknown', revision, evidence: 'their support has not answered yet' } as const;
    const answer = await client.verdict(run_id, body).then(
      () => 200,
      (error: unknown) => (error instanceof ProblemError ? error.problem.status : ('lost' as const)),
    );
    forms.push(answer);
    open -= 1;
  };
  const [driver] = chaos.living('api');
  if (driver === undefined) throw new Error('there is no api');

  const armed = await chaos.points.arm(cell.row.point, deed, run_id);
  void submit(chaos.victimApi());
  const victim = chaos.byPid(await armed.reached());
  return {
    run_id,
    seeded,
    victim,
    forms,
    // Another person judges the same revision through the other api.
    meanwhile: () => submit(driver),
    release: () => armed.release(),
    answered: () => poll(async () => open === 0, ANSWER_MS, 'a form was not answered'),
  };
}
