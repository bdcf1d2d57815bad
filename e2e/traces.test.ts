import { readFileSync } from 'node:fs';
import type { RunView } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import { LOG_FIELDS, SPAN_ATTRIBUTES, SPANS } from '@counterstamp/telemetry';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Fleet, poll, type ServiceProcess } from '../testing/fleet.ts';
import { type Collector, type ReceivedSpan, startCollector } from '../testing/otlp-collector.ts';
import { testFleet } from '../testing/test-fleet.ts';

/** A caller that traces: its own trace, and the span from which it calls. */
const CALLER = { trace_id: '4bf92f3577b34da6a3ce929d0e0e4736', span_id: '00f067aa0ba902b7' };

const PREFLIGHT = `
  api: hint result=queued
  preflight: stage preflight result=committed
    facts operation=read_request result=found
    decide trigger=request_loaded result=commit
    commit trigger=request_loaded result=committed
  preflight: stage preflight result=committed
    facts operation=read_order result=found
    decide trigger=checks_passed result=commit
    commit trigger=checks_passed result=committed
  preflight: stage collect result=committed
    facts operation=read_request result=found
    facts operation=read_order result=found
    facts operation=read_payment result=found
    decide trigger=evidence_recorded result=commit
    commit trigger=evidence_recorded result=committed
  preflight: stage propose result=committed
    decide trigger=proposal_received result=commit
    commit trigger=proposal_received result=committed
  preflight: stage propose result=committed
    decide trigger=action_fixed result=commit
    commit trigger=action_fixed result=committed`;

const CHECKS_BEFORE_DISPATCH = `
  executor: stage execute result=committed
    decide result=dispatch
    decide result=goes_on
    facts operation=read_request result=found
    facts operation=read_order result=found
    facts operation=read_payment result=found
    decide result=dispatch`;

const DECIDED = `
  api: decision result=recorded
    hint result=queued${CHECKS_BEFORE_DISPATCH}
    commit trigger=dispatched result=committed`;

const APPLIED = `
    decide trigger=effect_accepted result=commit
    commit trigger=effect_accepted result=committed
    hint result=queued`;

const VERIFIED = `
  verifier: stage verify result=committed
    look-up operation=read_refund_status result=exact
    decide trigger=effect_verified result=commit
    commit trigger=effect_verified result=committed`;

/** What a rendered tree shows of a span's attributes, in this order. */
const SHOWN = ['operation', 'attempt_n', 'retry', 'trigger', 'stop_reason', 'parked_reason', 'outcome', 'result'];

describe('one trace follows a run', () => {
  let fleet: Fleet;
  let collector: Collector;
  let happy: RunView;
  let retried: RunView;
  let parked: RunView;
  let expired: RunView;
  let untraced: RunView;

  beforeAll(async () => {
    collector = await startCollector();
    fleet = await testFleet('postgres', undefined, {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20of-the-collector',
      OTEL_BSP_SCHEDULE_DELAY: '100',
      LOG_LEVEL: 'debug',
    });
    [retried, expired, happy, parked, untraced] = await Promise.all([
      aRun({ kind: 'cut_before_accept' }, (run) => run.state === 'completed'),
      anIgnoredRun(),
      aTracedRun(),
      aRun({ kind: 'other_amount', amount: 4100 }, (run) => run.parked_reason !== null),
      aRunFromBefore(),
    ]);
    await poll(async () => [happy, retried, parked, expired, untraced].every(isWhole), 10_000, 'spans did not arrive');
  }, 120_000);
  afterAll(async () => {
    await fleet?.stop();
    await collector?.close();
  }, 30_000);

  async function aRun(fault: unknown, until: (run: RunView) => boolean): Promise<RunView> {
    const seeded = await fleet.seed();
    if (fault !== undefined) await fleet.fault(seeded.payment_id, fault);
    const run_id = await fleet.request(seeded);
    await fleet.approve(run_id);
    return await fleet.until(run_id, until, 40_000);
  }

  /** A run whose caller traces, and says so. */
  async function aTracedRun(): Promise<RunView> {
    const seeded = await fleet.seed();
    const { order_id } = seeded;
    const response = await fetch(`${fleet.apiUrl}/v1/runs`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${fleet.keys.requester}`,
        'content-type': 'application/json',
        traceparent: `00-${CALLER.trace_id}-${CALLER.span_id}-01`,
      },
      body: JSON.stringify({
        request_id: seeded.request_id,
        input: { order_id, requested_amount_minor: 4200, currency: 'USD', reason: 'arrived damaged' },
      }),
    });
    const { run_id } = (await response.json()) as { run_id: RunId };
    await fleet.approve(run_id);
    return await fleet.until(run_id, ['completed']);
  }

  /** Nobody decides, and the sweeper ends it. */
  async function anIgnoredRun(): Promise<RunView> {
    const run_id = await fleet.request(await fleet.seed(), { approval_life_ms: 2_000 });
    return await fleet.until(run_id, ['expired']);
  }

  /** A run that was created while nobody traced: nothing is kept with it. */
  async function aRunFromBefore(): Promise<RunView> {
    const run_id = await fleet.request(await fleet.seed());
    await fleet.until(run_id, ['awaiting_approval']);
    await fleet.owner`update cs.run set trace_context = null where run_id = ${run_id.slice('run_'.length)}::uuid`;
    await fleet.approve(run_id);
    return await fleet.until(run_id, ['completed']);
  }

  function traceOf(run: RunView): ReceivedSpan[] {
    const trace_id = run.trace_context?.split('-')[1] ?? run.run_id.slice('run_'.length).replaceAll('-', '');
    return collector.spans.filter((span) => span.trace_id === trace_id);
  }

  /** Whether the last commit arrived, and with every span also the one that it is under. */
  function isWhole(run: RunView): boolean {
    const spans = traceOf(run);
    const ids = new Set([...spans.map(({ span_id }) => span_id), '', CALLER.span_id]);
    const last = run.parked_reason ?? run.state;
    const isLast = ({ attributes }: ReceivedSpan) => attributes.parked_reason === last || attributes.to === last;
    return spans.some(isLast) && spans.every(({ parent_id }) => ids.has(parent_id));
  }

  /** The tree in order of its beginnings. Left out, since how often depends on the load: what lost a swap, was put off, or looked too early. */
  function tree(run: RunView): string {
    const early = new Set(
      traceOf(run)
        .filter(isEarlyLook)
        .map(({ parent_id }) => parent_id),
    );
    const spans = traceOf(run)
      .filter(
        ({ attributes, span_id }) =>
          !['lost', 'deferred', 'nothing'].includes(String(attributes.result)) && !early.has(span_id),
      )
      // Beginnings are known to the millisecond; within one, what ended first arrived first.
      .sort((a, b) => Number(a.started - b.started));
    const lines = (span: ReceivedSpan, depth: number): string[] => [
      `${'  '.repeat(depth)}${/^(commit|decide|facts|look-up|send)$/.test(span.name) || depth > 1 ? '' : `${span.service}: `}${span.name}${shown(span)}`,
      ...spans.filter(({ parent_id }) => parent_id === span.span_id).flatMap((child) => lines(child, depth + 1)),
    ];
    // Children of what is left out are not roots.
    const roots = spans.filter(({ parent_id }) => parent_id === '' || parent_id === CALLER.span_id);
    return roots.flatMap((root) => ['', ...lines(root, 0)]).join('\n');
  }

  function isEarlyLook({ name, attributes }: ReceivedSpan): boolean {
    return name === 'commit' && attributes.trigger === 'look_inconclusive';
  }

  function shown({ attributes }: ReceivedSpan): string {
    return SHOWN.flatMap((name) => (attributes[name] === undefined ? [] : [` ${name}=${attributes[name]}`])).join('');
  }

  test('of a request that completes: api, preflight, executor and verifier, below the caller’s own span', () => {
    expect(tree(happy)).toBe(`
api: POST /v1/runs${PREFLIGHT}${DECIDED}
    send attempt_n=1 retry=false outcome=applied${APPLIED}${VERIFIED}`);
    const [root] = collector.spans.filter(({ parent_id }) => parent_id === CALLER.span_id);
    expect(root).toMatchObject({
      trace_id: CALLER.trace_id,
      kind: 2,
      attributes: { 'http.request.method': 'POST', 'http.route': '/v1/runs', 'http.response.status_code': 201 },
    });
    expect(happy.trace_context).toBe(`00-${CALLER.trace_id}-${root?.span_id}-01`);
  });

  test('of a retry: the uncertain send, the looks that wait for settle, the recorded retry, and the second send', () => {
    expect(tree(retried)).toBe(`
api: POST /v1/runs${PREFLIGHT}${DECIDED}
    send attempt_n=1 retry=false outcome=uncertain
    decide trigger=outcome_uncertain result=commit
    commit trigger=outcome_uncertain stop_reason=external_result_uncertain result=committed
    hint result=queued
  reconciler: stage reconcile result=committed
    look-up operation=read_refund_status result=absent
    decide trigger=retry_recorded result=commit
    commit trigger=retry_recorded result=committed
    hint result=queued${CHECKS_BEFORE_DISPATCH}
    commit trigger=retry_dispatched result=committed
    send attempt_n=2 retry=true outcome=applied${APPLIED}${VERIFIED}`);
    expect(traceOf(retried).filter(isEarlyLook)).toHaveLength(retried.counters.look_ups - 1);
  });

  test('of a run that is parked: the look that differs, and the commit that says why', () => {
    expect(tree(parked)).toBe(`
api: POST /v1/runs${PREFLIGHT}${DECIDED}
    send attempt_n=1 retry=false outcome=applied${APPLIED}
  verifier: stage verify result=committed
    look-up operation=read_refund_status result=different
    decide trigger=verification_failed result=commit
    commit trigger=verification_failed stop_reason=verification_mismatch parked_reason=verification_mismatch result=committed`);
  });

  test('of a run that the sweeper ends', () => {
    expect(tree(expired)).toBe(`
api: POST /v1/runs${PREFLIGHT}
  reconciler: sweep commit trigger=approval_expired stop_reason=approval_expired result=committed`);
  });

  test('a run that was created while nobody traced is found by its id: every worker names the same trace', () => {
    const services = traceOf(untraced).map(({ service }) => service);
    expect(untraced.trace_context).toBeNull();
    expect(new Set(services)).toEqual(new Set(['api', 'executor', 'verifier']));
    expect(tree(untraced).replaceAll('\n\n', '\n')).toContain('send attempt_n=1 retry=false outcome=applied');
  });

  test('a decision is work on the run: in its trace, and linked to the request that asked for it', () => {
    const [decision] = traceOf(happy).filter(({ name }) => name === 'decision');
    const [link] = decision?.links ?? [];
    const asking = collector.spans.find(({ span_id }) => span_id === link?.span_id);
    expect(decision?.attributes).toMatchObject({ run_id: happy.run_id, decision: 'approve' });
    expect(asking).toMatchObject({ name: 'POST /v1/runs/{run_id}/decisions', trace_id: link?.trace_id });
    expect(asking?.trace_id).not.toBe(decision?.trace_id);
  });

  test('every span and every attribute is one of the catalogue, and no span tells what an error or an event said', () => {
    const documented = Object.values(SPANS).map((entry) => ({ ...entry, pattern: patternOf(entry.name) }));
    for (const span of collector.spans) {
      const entry = documented.find(({ pattern }) => pattern.test(span.name));
      expect(entry, span.name).toBeDefined();
      const allowed: readonly string[] = [...(entry?.attributes ?? []), 'error.type'];
      for (const name of Object.keys(span.attributes)) expect(allowed, `${name} of ${span.name}`).toContain(name);
      expect([span.events, span.status_message]).toEqual([0, '']);
    }
    // What is documented can be seen here, but for what no run of this file does.
    const seen = documented.filter(({ pattern }) => collector.spans.some(({ name }) => pattern.test(name)));
    expect(documented.filter((entry) => !seen.includes(entry)).map(({ name }) => name)).toEqual([
      'verdict',
      'proposal',
      'cancel',
    ]);
    expect(Object.keys(SPAN_ATTRIBUTES)).toEqual(
      expect.arrayContaining(documented.flatMap((entry) => entry.attributes)),
    );
    expect(collector.authorizations).toEqual(new Set(['Bearer of-the-collector']));
  });

  test('every line about a run names the run and its trace, in fields of the catalogue', () => {
    const lines = fleet.processes.flatMap(linesOf);
    for (const line of lines)
      expect(Object.keys(LOG_FIELDS), JSON.stringify(line)).toEqual(expect.arrayContaining(Object.keys(line)));
    const ofRun = lines.filter(({ run_id, level }) => run_id === happy.run_id && level !== 'debug');
    expect(ofRun.map(({ service }) => service)).toEqual(expect.arrayContaining(['preflight', 'executor', 'verifier']));
    const spans = new Set(traceOf(happy).map(({ span_id }) => span_id));
    for (const { trace_id, span_id } of ofRun) {
      expect(trace_id).toBe(CALLER.trace_id);
      expect(spans).toContain(span_id);
    }
  });

  test('a collector that takes connections and never answers holds nothing up: runs complete, the loss is told, SIGTERM drains and exits 0', async () => {
    const before = fleet.processes.filter(({ service }) => service === 'executor' || service === 'verifier');
    const [patient, impatient] = await Promise.all([
      // What it delivers is given up long after it has ended.
      fleet.start('executor', { OTEL_EXPORTER_OTLP_TIMEOUT: '600000', OTEL_BSP_EXPORT_TIMEOUT: '600000' }),
      fleet.start('verifier', { OTEL_EXPORTER_OTLP_TIMEOUT: '200' }),
    ]);
    expect(await Promise.all(before.map((started) => fleet.end(started, 'SIGTERM')))).toEqual(before.map(() => 0));
    collector.hang();
    const runs = await Promise.all([1, 2, 3].map(() => aRun(undefined, (run) => run.state === 'completed')));
    expect(runs).toHaveLength(3);
    const told = () => linesOf(impatient).filter(({ spans }) => spans !== undefined);
    await poll(async () => collector.held() > 0 && told().length > 0, 10_000, 'nobody tells of the collector');
    expect(told()).toMatchObject([{ level: 'warn', reason: 'no answer in time' }]);
    const running = fleet.processes.filter(({ child }) => child.exitCode === null);
    expect(running).toContain(patient);
    expect(await Promise.all(running.map((started) => fleet.end(started, 'SIGTERM')))).toEqual(running.map(() => 0));
    for (const started of running) expect(linesOf(started).at(-1)).toMatchObject({ message: 'drained' });
  });
});

/** A name of the catalogue as a pattern: `<…>` stands for a word. */
function patternOf(name: string): RegExp {
  return new RegExp(`^${name.replace('<METHOD> <route>', '[A-Z]+( /.*)?').replace('<stage>', '[a-z]+')}$`);
}

function linesOf({ log }: ServiceProcess): Record<string, unknown>[] {
  const text = readFileSync(log, 'utf8').trimEnd();
  return text.split('\n').map((line) => JSON.parse(line) as Record<string, unknown>);
}
