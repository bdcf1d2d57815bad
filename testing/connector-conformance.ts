import type { Connector, Observation, Outcome } from '@counterstamp/connectors';
import type { Digest, JsonObject, OneShot, ReadHttp } from '@counterstamp/manifest-core';
import { createReadClient, openOneShot, type ReadClient } from '@counterstamp/stage-runtime';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { RUN_ID } from './manifest-builder.ts';

/** A connector wired to a live target of its own, and what the suite must be able to do to that target. */
export interface ConnectorUnderTest {
  connector: Connector;
  /** An action that the target accepts. */
  action: JsonObject;
  /** Members of the action that the connector can observe. */
  fields: readonly string[];
  /** The same action of another amount in another currency; the target accepts it too. */
  actionOf(amount_minor: number, currency: string): Promise<JsonObject>;
  /** Makes the next request of `action` meet this fault of the target; `fault` is the target's own word. */
  arm(fault: unknown): Promise<void>;
  /** Makes the next look-up fail. */
  breakNextRead(): Promise<void>;
  /** Requests for an effect that reached the target. */
  requests(): Promise<number>;
  /** Effects that stand in the target's books for `action`. */
  effects(): Promise<number>;
  /** Books the same effect from elsewhere, without our tag. */
  bookLookalike(): Promise<void>;
  /** Lets this much of the target's time pass. Needed where look-ups lag. */
  passTime?(ms: number): Promise<void>;
  /** Credentials that must appear nowhere. */
  secrets: readonly string[];
  close(): Promise<void>;
}

/** What a fault of the target must be classified as, and how many effects it leaves behind. */
export type FaultRow = [what: string, fault: unknown, outcome: Outcome['class'], effects: number];

const BIND = {
  run_id: RUN_ID,
  action_digest: `sha256:${'a'.repeat(64)}` as Digest,
  idempotency_key: `cs-${'b'.repeat(64)}`,
};
/** Longest answer that the suite waits for; a target's hanging fault must hold longer. */
export const CALL_MS = 300;

/** The target's own name of an effect that was applied, or that was found to be exactly ours. */
function nameOf(seen: Outcome | Observation): string | undefined {
  return ('class' in seen && seen.class === 'applied') ||
    ('kind' in seen && seen.kind === 'found' && seen.match === 'exact')
    ? seen.effect.provider_ref
    : undefined;
}

/** A connection as the executor opens it. `live: false`: it is gone before anything can be written. */
async function execute(connector: Connector, action: JsonObject, { bind = BIND, live = true } = {}) {
  const prepared = connector.prepare(action, bind);
  const opened = await openOneShot(
    { ...prepared.request, bodyLength: prepared.bytes.byteLength },
    { connectTimeoutMs: 5_000 },
  );
  if (opened.kind === 'not_sent') throw new Error(`no connection: ${opened.detail}`);
  if (!live) opened.connection.close();
  let sends = 0;
  const transport: OneShot = {
    send: (bytes) => {
      sends += 1;
      return opened.connection.send(bytes, {
        storedBytes: prepared.bytes,
        mayStillSend: () => true,
        timeoutMs: CALL_MS,
        maxBytes: 64 * 1024,
      });
    },
  };
  const outcome = await connector.execute(prepared, transport);
  opened.connection.close();
  return { outcome, sends };
}

/** What every connector must keep, whatever its target does (connectors.md section 1). */
export function describeConnector(
  name: string,
  faults: readonly FaultRow[],
  start: (http: ReadHttp) => Promise<ConnectorUnderTest>,
) {
  describe(`${name} conforms to the port`, () => {
    let under: ConnectorUnderTest;
    let http: ReadClient;
    beforeEach(async () => {
      http = createReadClient();
      under = await start(http);
    });
    afterEach(async () => {
      http.close();
      await under.close();
    });
    const lookNow = (action = under.action) =>
      under.connector.observe(action, {
        run_id: BIND.run_id,
        action_digest: BIND.action_digest,
        attempts: [],
        fields: under.fields,
      });
    /** Lets pass what the contract grants the look-up to lag, and not a moment more. */
    const settle = async () => {
      const { consistency } = under.connector.contract.lookup;
      if (consistency.kind === 'strong') return;
      if (under.passTime === undefined) throw new Error(`${name} lags, so the suite must be able to pass time`);
      await under.passTime(consistency.settleMs);
    };
    const look = async () => {
      await settle();
      return await lookNow();
    };

    test('an accepted request is applied: sent once, one effect, and the look-up finds exactly it', async () => {
      const { outcome, sends } = await execute(under.connector, under.action);
      expect(outcome).toMatchObject({ class: 'applied' });
      expect([sends, await under.requests(), await under.effects()]).toEqual([1, 1, 1]);
      const seen = await look();
      expect(seen).toMatchObject({ kind: 'found', match: 'exact' });
      expect(nameOf(seen)).toBe(nameOf(outcome));
    });

    test('a look-up says how much its absence proves, and never more than its contract', async () => {
      const { consistency } = under.connector.contract.lookup;
      expect(await lookNow()).toEqual({ kind: 'absent', strength: consistency.kind });
      await execute(under.connector, under.action);
      // Right after the write a look-up that lags may not show it yet, and must say that this proves nothing; a strong one shows it.
      const early = await lookNow();
      if (consistency.kind === 'eventual' && early.kind === 'absent') expect(early.strength).toBe('eventual');
      else expect(early).toMatchObject({ kind: 'found', match: 'exact' });
    });

    test('a connection that is gone before the write is not_sent, and nothing reaches the target', async () => {
      const { outcome, sends } = await execute(under.connector, under.action, { live: false });
      expect(outcome).toMatchObject({ class: 'not_sent' });
      expect([sends, await under.requests(), await under.effects()]).toEqual([1, 0, 0]);
    });

    test.each(faults)('%s is classified rightly and sent once', async (_what, fault, expected, effects) => {
      await under.arm(fault);
      const { outcome, sends } = await execute(under.connector, under.action);
      expect(outcome.class).toBe(expected);
      expect([sends, await under.requests(), await under.effects()]).toEqual([1, 1, effects]);
      for (const secret of under.secrets) expect(JSON.stringify(outcome)).not.toContain(secret);
    });

    test('every class of outcome is produced; that a send may be repeated, only where the target keeps keys', () => {
      const produced = new Set([...faults.map(([, , outcome]) => outcome), 'applied', 'not_sent']);
      const repeats = under.connector.contract.idempotency.kind === 'key' ? ['retry_safe'] : [];
      expect([...produced].sort()).toEqual(['applied', 'not_sent', 'rejected', ...repeats, 'uncertain']);
    });

    test('the same bytes are prepared every time, also from another order of members, and hold no secret', () => {
      const prepare = (action: JsonObject) => Buffer.from(under.connector.prepare(action, BIND).bytes).toString('utf8');
      const bytes = prepare(under.action);
      const reversed = Object.fromEntries(Object.entries(under.action).reverse()) as JsonObject;
      expect(prepare(structuredClone(under.action))).toBe(bytes);
      expect(prepare(reversed)).toBe(bytes);
      expect(bytes).toContain(BIND.run_id);
      for (const secret of under.secrets) expect(bytes).not.toContain(secret);
    });

    test('the same key and bytes sent again make no second effect where the target keeps keys; elsewhere the look-up finds two', async () => {
      const [first, second] = [
        await execute(under.connector, under.action),
        await execute(under.connector, under.action),
      ];
      expect([first.outcome.class, await under.requests()]).toEqual(['applied', 2]);
      const keeps = under.connector.contract.idempotency.kind === 'key';
      expect(await under.effects()).toBe(keeps ? 1 : 2);
      expect(second.outcome).toMatchObject(keeps ? { class: 'applied', replayed: true } : { class: 'applied' });
      expect(await look()).toMatchObject({ kind: 'found', match: keeps ? 'exact' : 'multiple' });
    });

    test('nothing is found before anything was sent', async () => {
      expect(await look()).toMatchObject({ kind: 'absent' });
    });

    test('a lookalike is never taken for ours, neither alone nor beside it', async () => {
      await under.bookLookalike();
      expect(await look()).toMatchObject({ kind: 'found', match: 'lookalike' });
      const { outcome } = await execute(under.connector, under.action);
      const seen = await look();
      expect(seen).toMatchObject({ kind: 'found', match: 'exact' });
      expect(outcome.class).toBe('applied');
      expect(nameOf(seen)).toBe(nameOf(outcome));
    });

    test('a look-up that fails is unknown, never absent, and shows no secret', async () => {
      await under.breakNextRead();
      const seen = await look();
      expect(seen).toMatchObject({ kind: 'unknown' });
      for (const secret of under.secrets) expect(JSON.stringify(seen)).not.toContain(secret);
    });

    test('amounts come back from the target exactly, in every currency of the contract', async () => {
      const { connector } = under;
      const sent: { action: JsonObject; effect: { amount_minor: number; currency: string } }[] = [];
      for (const [currency, { granularity }] of Object.entries(connector.contract.amounts)) {
        for (const amount_minor of [granularity, 123_457 * granularity]) {
          const action = await under.actionOf(amount_minor, currency);
          const idempotency_key = `cs-${currency}-${amount_minor}`;
          const { outcome } = await execute(connector, action, { bind: { ...BIND, idempotency_key } });
          const effect = { amount_minor, currency };
          expect(outcome).toMatchObject({ class: 'applied', effect });
          sent.push({ action, effect });
        }
      }
      await settle();
      expect(sent.length).toBeGreaterThan(0);
      for (const { action, effect } of sent)
        expect(await lookNow(action)).toMatchObject({ kind: 'found', match: 'exact', effect });
    });

    test('what is displayed is made from the action alone and names its amount', () => {
      const shown = under.connector.display(under.action);
      expect(under.connector.display(structuredClone(under.action))).toEqual(shown);
      expect(shown.map((line) => line.field)).toContain('amount_minor');
      for (const secret of under.secrets) expect(JSON.stringify(shown)).not.toContain(secret);
    });
  });
}
