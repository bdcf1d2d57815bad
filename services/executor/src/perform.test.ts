import { createServer, type Socket } from 'node:net';
import { type Connector, createSandboxPayments, keyRetentionMs } from '@counterstamp/connectors';
import {
  type CommitOutcome,
  DISPATCH_REFUSALS,
  type DispatchCommit,
  type DispatchOutcome,
  digestOf,
  type Failpoint,
  type FailpointName,
  idempotencyKey,
  PROFILES,
  type Revision,
  retryReserveMs,
  type StageCommit,
  type Store,
} from '@counterstamp/manifest-core';
import { StoreUnavailable } from '@counterstamp/manifest-store';
import { noFailpoints, openOneShot } from '@counterstamp/stage-runtime';
import { refundWorkflow, type Workflow } from '@counterstamp/workflows';
import { afterEach, describe, expect, test } from 'vitest';
import { at, attempt, hotRow, loaded, START_MS } from '../../../testing/manifest-builder.ts';
import { approvedRun, effect, noHttp } from '../../../testing/refund-case.ts';
import { type HandClock, handClock, metricsOf, recordedLog, scriptedStore } from '../../../testing/worker-fakes.ts';
import { decideRefusal } from './decide.ts';
import { performDispatch } from './perform.ts';

const durations = PROFILES.fast;
const { epsilon_ms, sweep_grace_ms } = durations;
const BUDGET_MS = 2_000;
const run = loaded(approvedRun());
const { manifest } = run;
const executing = hotRow(manifest, { state: 'executing', revision: manifest.revision + 1 });

interface Provider {
  url: string;
  /** Everything that arrived, one text per connection. */
  received(): string[];
  /** Resolves when a connection has been accepted. */
  accepted: Promise<void>;
  /** Resolves when the first connection has ended: nothing more can arrive on it. */
  ended: Promise<void>;
}

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((close) => close()));
});

/** A provider that answers each whole request with `reply`, or not at all. */
async function provider(reply: string | undefined): Promise<Provider> {
  const sockets: Socket[] = [];
  const texts: string[] = [];
  let accept = () => {};
  let end = () => {};
  const accepted = new Promise<void>((resolve) => {
    accept = resolve;
  });
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const server = createServer((socket) => {
    const index = sockets.push(socket) - 1;
    texts.push('');
    accept();
    socket.on('error', () => {});
    socket.on('close', () => end());
    socket.on('data', (chunk) => {
      texts[index] += chunk.toString('latin1');
      const text = texts[index] ?? '';
      const head = text.indexOf('\r\n\r\n');
      const length = Number(/content-length: (\d+)/i.exec(text)?.[1]);
      if (head !== -1 && text.length >= head + 4 + length && reply !== undefined) socket.end(reply);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  open.push(
    () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  );
  return { url: `http://127.0.0.1:${address.port}`, received: () => texts, accepted, ended };
}

function http(status: number, body: object): string {
  const text = JSON.stringify(body);
  return `HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
}
const CREATED = http(201, {
  refund_id: 're_1',
  payment_id: 'pay_913',
  amount: 4200,
  currency: 'USD',
  reason: 'damaged_item',
  status: 'succeeded',
  metadata: { run_id: manifest.run_id },
});
const DISPUTED = http(402, { code: 'charge_disputed' });

interface Lab {
  reply?: string | undefined;
  commitDispatch?: (commit: DispatchCommit, provider: Provider, clock: HandClock) => Promise<DispatchOutcome>;
  commitStage?: (commit: StageCommit, tries: number) => Promise<CommitOutcome>;
  appendEvidence?: Store['appendEvidence'];
  failpoint?: Failpoint;
  connector?: Partial<Workflow['connector']>;
  contract?: Workflow['contract'];
  budget_ms?: number;
}

const committed = (budget_ms = BUDGET_MS): DispatchOutcome => ({
  kind: 'committed',
  row: executing,
  attempt_n: 1,
  started_at: at(START_MS),
  budget_ms,
});

async function lab({ reply = CREATED, failpoint = noFailpoints, connector = {}, ...script }: Lab) {
  const peer = await provider(reply);
  const clock = handClock();
  const dispatches: DispatchCommit[] = [];
  const outcomes: StageCommit[] = [];
  const late: Parameters<Store['appendEvidence']>[0][] = [];
  const { log, lines } = recordedLog();
  const store = scriptedStore({
    commitDispatch: (commit) => {
      dispatches.push(commit);
      return script.commitDispatch?.(commit, peer, clock) ?? Promise.resolve(committed(script.budget_ms));
    },
    commitStage: (commit) => {
      outcomes.push(commit);
      if (script.commitStage !== undefined) return script.commitStage(commit, outcomes.length - 1);
      return Promise.resolve({
        kind: 'committed',
        row: { ...executing, state: commit.to, revision: (executing.revision + 1) as Revision },
      });
    },
    appendEvidence: (evidence) => {
      late.push(evidence);
      return script.appendEvidence?.(evidence) ?? Promise.resolve('appended');
    },
  });
  const payments = createSandboxPayments({
    url: peer.url,
    writeKey: 'sk_secret',
    readKey: 'rk_secret',
    http: noHttp,
    timeoutMs: 1_000,
  });
  const refund = refundWorkflow({ ...payments, ...connector });
  const workflow = { ...refund, contract: script.contract ?? refund.contract };
  let attempts = 0;
  const metrics = metricsOf('executor');
  const deps = {
    store,
    clock,
    ids: { uuid: () => 'x', id: () => `att_${++attempts}`, salt: () => 'x' },
    failpoint,
    durations,
    open: openOneShot,
    log,
    metrics,
    trust: { signatures: undefined, development: true },
  };
  const perform = (on = run) => performDispatch(on, workflow, ['dec_1'], deps);
  return { peer, clock, dispatches, outcomes, late, lines, metrics, workflow, perform };
}

/** Nothing arrived, and nothing can any more. */
async function nothingSent(peer: Provider): Promise<void> {
  await peer.ended;
  expect(peer.received().join('')).toBe('');
}

describe('a dispatch', () => {
  test('sends the stored bytes once, under the key of the approved action, and commits the outcome on the dispatch’s revision', async () => {
    const { peer, dispatches, outcomes, perform } = await lab({});
    const decision = await perform();

    const [dispatched] = dispatches;
    if (dispatched === undefined || manifest.action === null || manifest.action_revision === null)
      throw new Error('nothing');
    const key = idempotencyKey(manifest.run_id, manifest.action_revision, manifest.action.digest);
    expect(dispatches).toHaveLength(1);
    expect(dispatched).toMatchObject({
      run_id: manifest.run_id,
      expected: manifest.revision,
      action_digest: manifest.action.digest,
      idempotency_key: key,
      request_digest: digestOf('cs.request-bytes.v1', dispatched.request_bytes),
      operation: 'refund_order',
      call_deadline_ms: durations.call_deadline_ms,
      expiry_margin_ms: epsilon_ms + 1_000,
      retry: null,
    });

    expect(peer.received()).toHaveLength(1);
    const [head, body] = (peer.received()[0] ?? '').split('\r\n\r\n');
    expect(Buffer.from(body ?? '', 'latin1').equals(Buffer.from(dispatched.request_bytes))).toBe(true);
    expect(head).toMatch(/^POST \/payments\/refunds /);
    expect(head?.toLowerCase()).toContain(`idempotency-key: ${key}`);

    expect(outcomes).toMatchObject([
      {
        expected: executing.revision,
        from: 'executing',
        on: 'effect_accepted',
        to: 'verifying',
        facts: { attempt_outcome: { attempt_id: 'att_1', status: 'succeeded', provider_ref: 're_1' } },
      },
    ]);
    expect(decision).toMatchObject({
      kind: 'committed',
      row: { state: 'verifying', revision: executing.revision + 1 },
    });
  });

  test.each<[string, 'key' | 'none']>([
    ['is sent under the committed key alone, whatever key its connector mints', 'key'],
    ['to a target without keys is sent without one', 'none'],
  ])('%s', async (_, kind) => {
    const { connector, contract } = (await lab({})).workflow;
    const { peer, dispatches, perform } = await lab({
      contract: kind === 'key' ? contract : { ...contract, idempotency: { kind } },
      connector: {
        prepare: (action, bind) => {
          const prepared = connector.prepare(action, bind);
          const headers = { ...prepared.request.headers, 'Idempotency-Key': `minted-${Math.random()}` };
          return { ...prepared, request: { ...prepared.request, url: `${peer.url}/payments/refunds`, headers } };
        },
      },
    });
    await perform();
    const [head = ''] = (peer.received()[0] ?? '').split('\r\n\r\n');
    const keys = [...head.matchAll(/^idempotency-key: (.*)$/gim)].map((match) => match[1]?.trim());
    expect(keys).toEqual(kind === 'key' ? [dispatches[0]?.idempotency_key] : []);
  });

  test('lets no byte leave before its commit is acknowledged', async () => {
    let before: string[] | undefined;
    const { peer, perform } = await lab({
      commitDispatch: async (_commit, at) => {
        await at.accepted;
        // A whole round trip through the same server: what had been written before it has arrived by now.
        await fetch(at.url, { method: 'POST', body: 'probe' });
        before = [...at.received()];
        return committed();
      },
    });
    await perform();
    expect(before?.[0]).toBe('');
    expect(before?.[1]).toContain('probe');
    expect(peer.received()[0]).toContain('POST /payments/refunds');
  });

  test('awaits nothing between the acknowledged commit and the write', async () => {
    const order: string[] = [];
    const note = (name: FailpointName) => {
      order.push(name);
      if (name === 'dispatch.acked.before-check') queueMicrotask(() => order.push('something awaited'));
    };
    const { perform } = await lab({ failpoint: { reach: (name) => Promise.resolve(note(name)), reachSync: note } });
    await perform();
    const [acked, ...after] = order.slice(order.indexOf('dispatch.acked.before-check'));
    expect(acked).toBe('dispatch.acked.before-check');
    expect(after.slice(0, 3)).toEqual([
      'dispatch.checked.before-write',
      'dispatch.written.before-response',
      'something awaited',
    ]);
    expect(order.slice(0, 3)).toEqual(['dispatch.loaded', 'dispatch.t0.before-begin', 'dispatch.call-sent']);
  });

  test.each(DISPATCH_REFUSALS)('that the database refuses as %s sends nothing', async (code) => {
    const refused = { kind: 'refused', code, detail: 'why' } as const;
    const { peer, outcomes, perform } = await lab({ commitDispatch: () => Promise.resolve(refused) });
    expect(await perform()).toEqual(decideRefusal(run, refused, durations));
    await nothingSent(peer);
    expect(outcomes).toEqual([]);
  });

  test('that lost its swap sends nothing and looks again', async () => {
    const { peer, outcomes, perform } = await lab({
      commitDispatch: () => Promise.resolve({ kind: 'stale_revision' }),
    });
    expect(await perform()).toEqual({ kind: 'reload' });
    await nothingSent(peer);
    expect(outcomes).toEqual([]);
  });

  test('whose commit may or may not have happened counts as not won: nothing is sent and nothing concluded', async () => {
    const { peer, outcomes, late, perform } = await lab({
      commitDispatch: () => Promise.reject(new StoreUnavailable('connection lost')),
    });
    await expect(perform()).rejects.toThrow(StoreUnavailable);
    await nothingSent(peer);
    expect([outcomes, late]).toEqual([[], []]);
  });

  test('without a connection makes no attempt and waits', async () => {
    const { dispatches, perform } = await lab({
      connector: {
        prepare: () => ({
          request: { method: 'POST', url: 'http://127.0.0.1:1', headers: {} },
          bytes: new Uint8Array(1),
        }),
      },
    });
    expect(await perform()).toMatchObject({ kind: 'defer', reason: 'connection: refused' });
    expect(dispatches).toEqual([]);
  });

  test('of a run without an action is a bug', async () => {
    const { perform } = await lab({});
    await expect(perform({ ...run, manifest: { ...manifest, action: null } })).rejects.toThrow('without an action');
  });
});

describe('a retry', () => {
  const doubted = loaded({
    ...manifest,
    state: 'needs_reconciliation',
    retry_allowed: true,
    stop_reason: { code: 'external_result_uncertain', message: 'm' },
    attempts: [attempt(manifest)],
  });
  /** The failpoints in the order in which a dispatch reached them. */
  const recording = () => {
    const order: FailpointName[] = [];
    const note = (name: FailpointName) => void order.push(name);
    return { order, failpoint: { reach: (name, _run) => Promise.resolve(note(name)), reachSync: note } as Failpoint };
  };

  test('sends the first attempt’s bytes under its key, and tells the database what the key contract grants', async () => {
    const first = await lab({});
    await first.perform();
    const again = await lab({});
    expect(await again.perform(doubted)).toMatchObject({ kind: 'committed', row: { state: 'verifying' } });
    const [before, after] = [first.dispatches[0], again.dispatches[0]];
    if (before === undefined || after === undefined) throw new Error('nothing was dispatched');
    expect(Buffer.from(after.request_bytes)).toEqual(Buffer.from(before.request_bytes));
    expect(after).toMatchObject({
      expected: doubted.manifest.revision,
      idempotency_key: before.idempotency_key,
      request_digest: before.request_digest,
      action_digest: before.action_digest,
      retry: { retention_ms: keyRetentionMs(again.workflow.contract), reserve_ms: retryReserveMs(durations) },
    });
    expect(again.peer.received()).toHaveLength(1);
    const keyOnTheWire = (text = '') => /idempotency-key: (\S+)/i.exec(text)?.[1];
    expect(keyOnTheWire(again.peer.received()[0])).toBe(before.idempotency_key);
    expect(again.peer.received()[0]?.split('\r\n\r\n')[1]).toBe(first.peer.received()[0]?.split('\r\n\r\n')[1]);
  });

  test('is a move of its own in the log, and its request is counted by its outcome', async () => {
    const { lines, metrics, perform } = await lab({});
    await perform(doubted);
    expect(lines).toContainEqual(
      expect.objectContaining({ from: 'needs_reconciliation', to: 'executing', trigger: 'retry_dispatched' }),
    );
    expect(await metrics.text()).toMatch(/^counterstamp_attempts_total\{outcome="applied".*\} 1$/m);
  });

  test('reaches its own failpoint between the acknowledged commit and the deadline check; a first dispatch never does', async () => {
    const { order, failpoint } = recording();
    await (await lab({ failpoint })).perform(doubted);
    const acked = order.indexOf('dispatch.acked.before-check');
    expect(order.slice(acked, acked + 4)).toEqual([
      'dispatch.acked.before-check',
      'retry.committed.before-write',
      'dispatch.checked.before-write',
      'dispatch.written.before-response',
    ]);
    const once = recording();
    await (await lab({ failpoint: once.failpoint })).perform();
    expect(once.order).not.toContain('retry.committed.before-write');
  });

  test('has a clock of its own: the deadline check counts from this commit, not from the first', async () => {
    const { outcomes, peer, perform } = await lab({
      commitDispatch: (_commit, _peer, clock) => {
        clock.advance(BUDGET_MS - epsilon_ms + 1);
        return Promise.resolve(committed());
      },
    });
    await perform(doubted);
    expect(outcomes).toMatchObject([{ on: 'nothing_sent' }]);
    await nothingSent(peer);
  });

  test('that the provider clearly rejects leaves the run in doubt: the first send may have been applied', async () => {
    const { outcomes, perform } = await lab({ reply: DISPUTED });
    await perform(doubted);
    expect(outcomes).toMatchObject([{ on: 'outcome_uncertain', facts: { attempt_outcome: { status: 'uncertain' } } }]);
  });

  test('that the database refuses sends nothing and is taken back', async () => {
    const { peer, outcomes, perform } = await lab({
      commitDispatch: () => Promise.resolve({ kind: 'refused', code: 'retry_invalid', detail: 'evidence_stands' }),
    });
    expect(await perform(doubted)).toMatchObject({ kind: 'commit', on: 'retry_refused' });
    await nothingSent(peer);
    expect(outcomes).toEqual([]);
  });
});

describe('the deadline check', () => {
  const last = BUDGET_MS - epsilon_ms;
  const notSent = {
    on: 'nothing_sent',
    to: 'needs_reconciliation',
    facts: { attempt_outcome: { status: 'not_sent', response: { reason: 'late' } } },
  };
  const sent = { on: 'effect_accepted', to: 'verifying' };

  test.each<[string, (clock: HandClock) => void, object]>([
    ['sends at the last permitted moment', (clock) => clock.advance(last), sent],
    ['sends nothing a millisecond later', (clock) => clock.advance(last + 1), notSent],
    ['takes the wall clock when the monotonic one stood still', (clock) => clock.advanceWall(last + 1), notSent],
    [
      'takes the monotonic clock when the wall clock was set back',
      (clock) => {
        clock.advance(last + 1);
        clock.advanceWall(-3_600_000);
      },
      notSent,
    ],
  ])('%s', async (_, pass, expected) => {
    const { peer, outcomes, perform } = await lab({
      commitDispatch: (_commit, _peer, clock) => {
        pass(clock);
        return Promise.resolve(committed());
      },
    });
    const decision = await perform();
    expect(outcomes).toMatchObject([expected]);
    expect(decision).toMatchObject({ kind: 'committed' });
    await peer.ended;
    expect(peer.received().join('').includes('POST')).toBe(expected === sent);
  });

  test('counts from before the commit was begun', async () => {
    let clock: HandClock | undefined;
    const failpoint: Failpoint = {
      reach: (name) => Promise.resolve(name === 'dispatch.t0.before-begin' ? clock?.advance(last + 1) : undefined),
      reachSync: () => undefined,
    };
    const rig = await lab({ failpoint });
    clock = rig.clock;
    await rig.perform();
    expect(rig.outcomes).toMatchObject([notSent]);
    await nothingSent(rig.peer);
  });

  test('does not count the time that the connection took', async () => {
    let clock: HandClock | undefined;
    const failpoint: Failpoint = {
      reach: (name) => Promise.resolve(name === 'dispatch.loaded' ? clock?.advance(60_000) : undefined),
      reachSync: () => undefined,
    };
    const rig = await lab({ failpoint });
    clock = rig.clock;
    await rig.perform();
    expect(rig.outcomes).toMatchObject([sent]);
  });
});

describe('an answer', () => {
  test.each<[string, string | undefined, object]>([
    ['that accepts leads to verification', CREATED, { on: 'effect_accepted' }],
    ['that clearly rejects ends the run', DISPUTED, { on: 'effect_rejected', to: 'failed' }],
    ['that is not understood leaves the effect in doubt', http(500, { code: 'oops' }), { on: 'outcome_uncertain' }],
    ['that is cut off leaves the effect in doubt', CREATED.slice(0, -10), { on: 'outcome_uncertain' }],
  ])('%s', async (_, reply, expected) => {
    const { outcomes, perform } = await lab({ reply });
    await perform();
    expect(outcomes).toMatchObject([expected]);
  });

  test('that does not come before the call deadline leaves the effect in doubt', async () => {
    const peer = await provider(undefined);
    const { outcomes, perform } = await lab({
      budget_ms: epsilon_ms + 50,
      connector: {
        prepare: () => ({
          request: { method: 'POST', url: peer.url, headers: {} },
          bytes: new TextEncoder().encode('{}'),
        }),
      },
    });
    await perform();
    expect(outcomes).toMatchObject([
      { on: 'outcome_uncertain', facts: { attempt_outcome: { response: { reason: 'timeout' } } } },
    ]);
    expect(peer.received()).toHaveLength(1);
  });

  test('that clearly rejects does not speak for an earlier attempt in doubt', async () => {
    const earlier = loaded({ ...manifest, attempts: [attempt(manifest)] });
    const { outcomes, perform } = await lab({ reply: DISPUTED });
    await perform(earlier);
    expect(outcomes).toMatchObject([{ on: 'outcome_uncertain' }]);
  });

  test.each<[string, Partial<Connector>, string, string]>([
    [
      'throws before it sent anything: nothing was sent',
      { execute: () => Promise.reject(new Error('bug')) },
      'nothing_sent',
      'the connector sent nothing',
    ],
    [
      'throws after it sent says nothing about the effect',
      {
        execute: async (prepared, transport) => {
          await transport.send(prepared.bytes);
          throw new Error('bug');
        },
      },
      'outcome_uncertain',
      'connector_failed',
    ],
    [
      'calls a send without a reply a rejection: the transport knows better',
      {
        execute: async (prepared, transport) => {
          await transport.send(prepared.bytes);
          return { class: 'not_sent', reason: 'so it says' };
        },
      },
      'outcome_uncertain',
      'so it says',
    ],
  ])('of a connector that %s', async (_, connector, on, reason) => {
    const failpoint: Failpoint = {
      // Longer than a rejection may go unhandled.
      reach: () => new Promise((resolve) => setImmediate(resolve)),
      reachSync: () => undefined,
    };
    const { outcomes, perform } = await lab({ failpoint, connector });
    await perform();
    expect(outcomes).toMatchObject([{ on, facts: { attempt_outcome: { response: { reason } } } }]);
  });

  test('bytes that a connector changes in its own buffer do not leave, and the key on the wire is the committed one', async () => {
    const { outcomes, perform } = await lab({
      connector: {
        execute: async (prepared, transport) => {
          prepared.bytes.fill(0x20);
          const result = await transport.send(prepared.bytes);
          return { class: 'uncertain', reason: result.kind };
        },
      },
    });
    await perform();
    expect(outcomes).toMatchObject([
      { on: 'nothing_sent', facts: { attempt_outcome: { response: { reason: 'bytes_differ' } } } },
    ]);
  });

  test('to other bytes than the stored ones is never had: they do not leave', async () => {
    const { peer, outcomes, perform } = await lab({
      connector: {
        execute: async (prepared, transport) => {
          const result = await transport.send(prepared.bytes.map((byte) => byte ^ 1));
          return result.kind === 'not_sent'
            ? { class: 'not_sent', reason: result.reason }
            : { class: 'applied', effect: effect(), replayed: false };
        },
      },
    });
    await perform();
    expect(outcomes).toMatchObject([
      { on: 'nothing_sent', facts: { attempt_outcome: { response: { reason: 'bytes_differ' } } } },
    ]);
    await nothingSent(peer);
  });

  test('never shows the key in a log', async () => {
    const { lines, perform } = await lab({ reply: http(500, { code: 'oops' }) });
    await perform();
    expect(lines.length).toBeGreaterThan(2);
    expect(JSON.stringify(lines)).not.toContain('sk_secret');
  });
});

describe('an outcome', () => {
  test.each<[string, string, boolean, string]>([
    ['that the provider accepted', CREATED, true, 'applied'],
    ['that the provider rejected', DISPUTED, false, 'rejected'],
  ])('%s is kept as evidence when the run moved on meanwhile', async (_, reply, applied, outcome) => {
    const { late, outcomes, perform } = await lab({
      reply,
      commitStage: () => Promise.resolve({ kind: 'stale_revision' }),
    });
    expect(await perform()).toMatchObject({ kind: 'nothing' });
    expect(outcomes).toHaveLength(1);
    const provider_ref = applied ? 're_1' : null;
    expect(late).toMatchObject([
      { run_id: manifest.run_id, attempt_id: 'att_1', applied, provider_ref, body: { class: outcome } },
    ]);
  });

  test('is tried again while the database is away, on the same revision, and sent once', async () => {
    const { peer, outcomes, clock, perform } = await lab({
      commitStage: (commit, tries) =>
        tries < 3
          ? Promise.reject(new StoreUnavailable('away'))
          : Promise.resolve({ kind: 'committed', row: { ...executing, state: commit.to } }),
    });
    expect(await perform()).toMatchObject({ kind: 'committed', row: { state: 'verifying' } });
    expect(outcomes).toHaveLength(4);
    expect(new Set(outcomes.map((commit) => JSON.stringify(commit))).size).toBe(1);
    expect(clock.sleeps).toEqual([100, 200, 400]);
    expect(peer.received()).toHaveLength(1);
  });

  test('is given up to the sweeper once its grace is over, and not before', async () => {
    const budget_ms = 1_200;
    const { outcomes, clock, late, perform } = await lab({
      budget_ms,
      commitStage: () => Promise.reject(new StoreUnavailable('away')),
    });
    await expect(perform()).rejects.toThrow(StoreUnavailable);
    // The try after 1,500 ms lies beyond the call deadline and within the grace; the one after 3,100 ms is the last.
    expect(budget_ms + sweep_grace_ms).toBe(1_700);
    expect(clock.sleeps).toEqual([100, 200, 400, 800, 1_600]);
    expect(outcomes).toHaveLength(6);
    expect(late).toEqual([]);
  });

  test('whose first commit may have happened ends as evidence, not as a second commit', async () => {
    const { outcomes, late, perform } = await lab({
      commitStage: (_commit, tries) =>
        tries === 0 ? Promise.reject(new StoreUnavailable('cut')) : Promise.resolve({ kind: 'stale_revision' }),
    });
    expect(await perform()).toMatchObject({ kind: 'nothing' });
    expect(outcomes).toHaveLength(2);
    expect(late).toMatchObject([{ applied: true }]);
  });

  test('that is to be kept as evidence is tried again too', async () => {
    let tries = 0;
    const { late, perform } = await lab({
      commitStage: () => Promise.resolve({ kind: 'stale_revision' }),
      appendEvidence: () =>
        tries++ === 0 ? Promise.reject(new StoreUnavailable('away')) : Promise.resolve('reopened'),
    });
    expect(await perform()).toMatchObject({ kind: 'nothing' });
    expect(late).toHaveLength(2);
  });

  test('that the database refuses for another reason is a bug and not tried again', async () => {
    const { outcomes, perform } = await lab({ commitStage: () => Promise.reject(new Error('illegal move')) });
    await expect(perform()).rejects.toThrow('illegal move');
    expect(outcomes).toHaveLength(1);
  });
});
