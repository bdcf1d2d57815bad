import { expect, test } from 'vitest';
import type { QueueBackend } from './backend.ts';
import { hintQueueOn } from './hint-queue.ts';
import { systemTimers, type Timers } from './ports/timers.ts';

const HINT = { run_id: 'run_019ad8b2-7c11-7abc-8def-0123456789ab', revision: 1 };

/** A backend whose adds end when the test says so, and a clock that the test moves. */
function lab(over: Partial<QueueBackend> = {}) {
  const adds: { resolve: () => void; reject: (error: Error) => void }[] = [];
  const due: { at: number; task: () => void }[] = [];
  const clock = { ms: 0 };
  const reports: string[] = [];
  let renewed = 0;
  const timers: Timers = {
    monotonicMs: () => clock.ms,
    wallMs: () => clock.ms,
    after: (ms, task) => {
      const timer = { at: clock.ms + ms, task };
      due.push(timer);
      return () => void due.splice(due.indexOf(timer), 1);
    },
  };
  const backend: QueueBackend = {
    opened: Promise.resolve(),
    ready: () => true,
    renew: () => {
      renewed += 1;
    },
    add: () => new Promise<void>((resolve, reject) => void adds.push({ resolve, reject })),
    waiting: async () => 0,
    backlog: async () => ({ waiting: 0, active: 0, oldest_age_ms: 0 }),
    ping: async () => 'PONG',
    work: () => {
      throw new Error('not in this test');
    },
    close: async () => {},
    ...over,
  };
  const queue = hintQueueOn(
    backend,
    (error, where) => reports.push(`${where}: ${String(error)}`),
    timers,
    () => {},
  );
  return {
    queue,
    adds,
    reports,
    renewed: () => renewed,
    advance: async (ms: number) => {
      clock.ms += ms;
      for (const timer of due.filter(({ at }) => at <= clock.ms)) timer.task();
      await settle();
    },
  };
}
const settle = () => new Promise((resolve) => setImmediate(resolve));

test('an add that misses its second opens the circuit, and its end closes it', async () => {
  const { queue, adds, advance, renewed } = lab();
  const first = queue.hint('verify', HINT);
  const second = queue.hint('verify', { ...HINT, revision: 2 });
  await settle();
  await advance(999);
  expect(renewed()).toBe(0);
  await advance(1);
  expect(await Promise.all([first, second])).toEqual([
    { kind: 'unavailable', reason: 'deadline' },
    { kind: 'unavailable', reason: 'deadline' },
  ]);
  expect(renewed()).toBe(1);
  for (let i = 0; i < 1_000; i++)
    expect(await queue.hint('execute', HINT)).toEqual({ kind: 'unavailable', reason: 'circuit_open' });
  expect(adds.length).toBe(2);
  adds[0]?.reject(new Error('connection closed'));
  await settle();
  expect(await queue.hint('execute', HINT)).toEqual({ kind: 'unavailable', reason: 'circuit_open' });
  adds[1]?.resolve();
  await settle();
  const third = queue.hint('execute', HINT);
  await settle();
  adds[2]?.resolve();
  expect(await third).toBe('queued');
});

test('no more than 256 adds are under way', async () => {
  const { queue, adds } = lab();
  const hints = Array.from({ length: 300 }, () => queue.hint('verify', HINT));
  await settle();
  expect(adds.length).toBe(256);
  for (const add of adds) add.resolve();
  expect((await Promise.all(hints)).filter((result) => result !== 'queued')).toEqual(
    Array(44).fill({ kind: 'unavailable', reason: 'backlog' }),
  );
});

test('an add that the backend refuses is reported and unavailable', async () => {
  const { queue, adds, reports } = lab();
  const hint = queue.hint('verify', HINT);
  await settle();
  adds[0]?.reject(new Error('OOM command not allowed'));
  expect(await hint).toEqual({ kind: 'unavailable', reason: 'refused' });
  expect(reports).toEqual(['verify.hint: Error: OOM command not allowed']);
});

test('a backend that throws at once is a refusal too', async () => {
  const { queue } = lab({
    add: () => {
      throw new Error('bug');
    },
  });
  expect(await queue.hint('verify', HINT)).toEqual({ kind: 'unavailable', reason: 'refused' });
});

test('without a connection nothing is added', async () => {
  const { queue, adds } = lab({ ready: () => false });
  expect(await queue.hint('verify', HINT)).toEqual({ kind: 'unavailable', reason: 'not_connected' });
  expect(adds).toEqual([]);
});

test('the first hints wait for the first connection, but no longer than their second', async () => {
  let open = (): void => {};
  let connected = false;
  const { queue, adds, advance } = lab({
    opened: new Promise((resolve) => {
      open = resolve;
    }),
    ready: () => connected,
  });
  const first = queue.hint('verify', HINT);
  await settle();
  await advance(1_000);
  expect(await first).toEqual({ kind: 'unavailable', reason: 'not_connected' });
  const second = queue.hint('verify', HINT);
  await settle();
  await advance(400);
  connected = true;
  open();
  await settle();
  expect(adds.length).toBe(1);
  await advance(599);
  adds[0]?.resolve();
  expect(await second).toBe('queued');
});

test('closing is bounded when the backend does not close', async () => {
  const { queue, advance } = lab({ close: () => new Promise(() => {}) });
  const closing = queue.close();
  await settle();
  await advance(2_000);
  await closing;
});

test('the real timers keep the process alive and can be cancelled', async () => {
  let rung = 0;
  const cancel = systemTimers.after(5, () => {
    rung += 1;
  });
  cancel();
  await new Promise<void>((resolve) => {
    systemTimers.after(20, resolve);
  });
  expect(rung).toBe(0);
});
