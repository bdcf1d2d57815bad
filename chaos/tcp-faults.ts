import { rm, writeFile } from 'node:fs/promises';
import type { RunId } from '@counterstamp/manifest-core';
import type { FaultInput } from '@counterstamp/sandbox';
import type { TcpFault } from '../testing/tcp-proxy.ts';
import { booksOf } from './cells/books.ts';
import { ask, isSettled } from './cells/ways.ts';
import { admin, type ChaosFleet } from './harness.ts';
import { checkHistories } from './histories.ts';
import type { End } from './kinds.ts';

/** What is done to the way between worker and provider, at one send. */
type Cut =
  /** To the bytes of the connection that carries the request. */
  | { on: 'wire'; fault: TcpFault }
  /** By what stands at its end. */
  | { on: 'answer'; fault: FaultInput }
  /** To every connection, for a while. */
  | { on: 'way'; how: 'refuse' | 'cut' | 'dns'; ms: number };

export interface NetworkCell {
  what: string;
  kind: 'key_with_retention' | 'strong_without_key' | 'eventual_without_key';
  cut: Cut;
  end: End;
  attempts: number;
  /** The history checker's findings that the fault itself explains. */
  explains: readonly string[];
}

const LAG_MS = { key_with_retention: 0, strong_without_key: 0, eventual_without_key: 900 } as const;

const once: End = { state: 'completed', reasons: [], sends: [1, 1], effects: [1, 1] };
const retried: End = { state: 'completed', reasons: [], sends: [2, 2], effects: [1, 1] };
const absent = (sends: number): End => ({
  state: 'parked',
  reasons: ['effect_not_found'],
  sends: [sends, sends],
  effects: [0, 0],
});

/** One send each, by what becomes of it: there already, never there, or in doubt for good. */
interface Row {
  what: string;
  cut: Cut;
  /** The effect is there in the end, without another send. */
  there: boolean;
  /** Whether the provider's ledger shows the first request. */
  arrives: boolean;
}

const ROWS: readonly Row[] = [
  { what: 'connection refused for 2 s', cut: { on: 'way', how: 'refuse', ms: 2_000 }, there: true, arrives: true },
  { what: 'name unknown for 2 s', cut: { on: 'way', how: 'dns', ms: 2_000 }, there: true, arrives: true },
  { what: 'everything cut for 2 s', cut: { on: 'way', how: 'cut', ms: 2_000 }, there: true, arrives: true },
  {
    what: 'reset before the request arrives',
    cut: { on: 'wire', fault: { kind: 'cut_request' } },
    there: false,
    arrives: false,
  },
  { what: 'reset after the request', cut: { on: 'wire', fault: { kind: 'cut_reply' } }, there: true, arrives: true },
  { what: 'black hole', cut: { on: 'wire', fault: { kind: 'swallow' } }, there: false, arrives: false },
  { what: 'slow beyond D', cut: { on: 'wire', fault: { kind: 'delay_reply', ms: 2_800 } }, there: true, arrives: true },
  {
    what: 'answer delayed past settle',
    cut: { on: 'wire', fault: { kind: 'delay_reply', ms: 6_000 } },
    there: true,
    arrives: true,
  },
  { what: 'half a reply', cut: { on: 'wire', fault: { kind: 'half_reply' } }, there: true, arrives: true },
  {
    what: '500 after the effect',
    cut: { on: 'answer', fault: { kind: 'error_after_accept', status: 500 } },
    there: true,
    arrives: true,
  },
  {
    what: '503 without one',
    cut: { on: 'answer', fault: { kind: 'reject', status: 503, code: 'unavailable', store: false } },
    there: false,
    arrives: true,
  },
  {
    what: '409',
    cut: { on: 'answer', fault: { kind: 'reject', status: 409, code: 'idempotency_key_in_use' } },
    there: false,
    arrives: true,
  },
  {
    what: '422',
    cut: { on: 'answer', fault: { kind: 'reject', status: 422, code: 'idempotency_body_mismatch' } },
    there: false,
    arrives: true,
  },
  {
    what: 'HTML after the effect',
    cut: { on: 'answer', fault: { kind: 'html_after_accept' } },
    there: true,
    arrives: true,
  },
  {
    what: '10 MB after the effect',
    cut: { on: 'answer', fault: { kind: 'huge_after_accept' } },
    there: true,
    arrives: true,
  },
  {
    what: 'an answer that never ends',
    cut: { on: 'answer', fault: { kind: 'drip_after_accept', interval_ms: 100 } },
    there: true,
    arrives: true,
  },
];

/** Every fault of the network, for each kind of provider whose recovery differs. */
export function networkCells(): NetworkCell[] {
  return (['key_with_retention', 'strong_without_key', 'eventual_without_key'] as const).flatMap((kind) => {
    const hasKey = kind === 'key_with_retention';
    return [
      ...ROWS.map(({ what, cut, there, arrives }): NetworkCell => {
        const first = arrives ? 1 : 0;
        const end = there ? once : hasKey ? { ...retried, sends: [1 + first, 1 + first] as const } : absent(first);
        return { what, kind, cut, end, attempts: there || !hasKey ? 1 : 2, explains: [] };
      }),
      {
        what: 'request delayed past settle',
        kind,
        cut: { on: 'wire', fault: { kind: 'delay_request', ms: 7_000 } },
        // With a key the retry has had the effect by then, and the late request replays it. Without one it makes the only effect.
        end: hasKey ? retried : { state: 'parked', reasons: ['effect_not_found'], sends: [1, 1], effects: [1, 1] },
        attempts: hasKey ? 2 : 1,
        explains: ['late_send'],
      },
      {
        what: 'request duplicated on the way',
        kind,
        cut: { on: 'wire', fault: { kind: 'duplicate' } },
        // Nothing that we do helps against a network that repeats requests to a provider without a key: it must be seen, and is.
        end: hasKey
          ? retried
          : { state: 'parked', reasons: ['verification_mismatch', 'effect_ambiguous'], sends: [2, 2], effects: [2, 2] },
        attempts: 1,
        explains: hasKey ? ['sent_twice'] : ['sent_twice', 'action_twice'],
      },
    ];
  });
}

export interface NetworkResult {
  name: string;
  expected: string;
  faults: string[];
  ms: number;
}

/** Milliseconds for a run to end or be parked. */
const SETTLE_MS = 45_000;

/** Brings one fault about and judges what came of it. */
export async function runNetworkCell(chaos: ChaosFleet, cell: NetworkCell): Promise<NetworkResult> {
  const startedAt = performance.now();
  const { fleet, provider } = chaos;
  const workflow = cell.kind === 'key_with_retention' ? 'refund' : 'credit';
  const faults: string[] = [];
  try {
    await admin(fleet, 'PUT', '/admin/settings', { credits_lag_ms: LAG_MS[cell.kind] });
    const seeded = await fleet.seed();
    const at =
      workflow === 'refund' ? `/admin/faults/${seeded.payment_id}` : `/admin/credits/faults/cus_${seeded.order_id}`;
    if (cell.cut.on === 'answer') await admin(fleet, 'PUT', at, cell.cut.fault);
    const run_id = await ask(fleet, workflow, seeded);
    await fleet.until(run_id, ['awaiting_approval']);
    if (cell.cut.on === 'wire') provider.meet(cell.cut.fault, { prefix: 'POST ', times: 1 });
    if (cell.cut.on === 'way') await blockWay(chaos, cell.cut.how, cell.cut.ms, () => fleet.approve(run_id));
    else await fleet.approve(run_id);
    const run = await fleet.until(run_id, isSettled, SETTLE_MS);
    if (cell.cut.on === 'wire' && provider.met() !== 1) faults.push(`${provider.met()} requests met the fault`);
    if (cell.cut.on === 'wire' && cell.cut.fault.kind === 'delay_request')
      await untilArrived(chaos, workflow, seeded, run_id, cell.end.sends[0]);

    const { sends, effects } = await booksOf(chaos, workflow, seeded, run_id);
    const state = run.parked_reason !== null ? 'parked' : run.state;
    const reason = run.parked_reason ?? run.stop_reason?.code ?? null;
    if (state !== cell.end.state) faults.push(`ended ${state} (${reason}), not ${cell.end.state}`);
    if (cell.end.reasons.length > 0 && !cell.end.reasons.includes(reason ?? '')) faults.push(`the reason is ${reason}`);
    if (sends.length < cell.end.sends[0] || sends.length > cell.end.sends[1])
      faults.push(`${sends.length} requests arrived, not ${cell.end.sends[0]}`);
    if (effects < cell.end.effects[0] || effects > cell.end.effects[1])
      faults.push(`${effects} effects, not ${cell.end.effects[0]}`);
    if (run.attempts.length !== cell.attempts) faults.push(`${run.attempts.length} attempts, not ${cell.attempts}`);
    if (new Set(sends.map((send) => `${send.idempotency_key} ${send.body_sha256}`)).size > 1)
      faults.push('the requests differ in key or bytes');
    const found = await checkHistories(chaos, { only: [run_id], lateSend: 'may', overdue_ms: 15_000 });
    faults.push(...found.filter((line) => !cell.explains.some((code) => line.includes(code))));
  } catch (error) {
    faults.push(error instanceof Error ? error.message : String(error));
  } finally {
    await provider.heal();
    if (chaos.dnsOutage !== undefined) await rm(chaos.dnsOutage, { force: true });
  }
  const { end } = cell;
  return {
    name: `${cell.what}, ${cell.kind}`,
    expected: `${end.state}${end.reasons.length > 0 ? ` (${end.reasons.join(' or ')})` : ''}, ${end.sends[0]} request${end.sends[0] === 1 ? '' : 's'}, ${end.effects[0]} effect${end.effects[0] === 1 ? '' : 's'}, ${cell.attempts} attempt${cell.attempts === 1 ? '' : 's'}`,
    faults,
    ms: Math.round(performance.now() - startedAt),
  };
}

/** No way to the provider while the run is approved and for a while after. */
async function blockWay(
  chaos: ChaosFleet,
  how: 'refuse' | 'cut' | 'dns',
  ms: number,
  act: () => Promise<void>,
): Promise<void> {
  const { provider } = chaos;
  if (how === 'dns') {
    if (chaos.dnsOutage === undefined) throw new Error('this fleet asks no names');
    await writeFile(chaos.dnsOutage, '');
    await provider.cut(); // A connection that is open needs no name.
    await provider.heal();
  } else if (how === 'cut') await provider.cut();
  else await provider.refuse();
  await act();
  await new Promise((resolve) => setTimeout(resolve, ms));
  if (chaos.dnsOutage !== undefined) await rm(chaos.dnsOutage, { force: true });
  await provider.heal();
}

async function untilArrived(
  chaos: ChaosFleet,
  workflow: 'refund' | 'credit',
  seeded: { order_id: string; payment_id: string },
  run_id: RunId,
  sends: number,
): Promise<void> {
  const until = Date.now() + 10_000;
  while (Date.now() < until && (await booksOf(chaos, workflow, seeded, run_id)).sends.length < sends)
    await new Promise((resolve) => setTimeout(resolve, 100));
  await new Promise((resolve) => setTimeout(resolve, 200));
}
