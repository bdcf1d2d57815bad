import { setTimeout as sleep } from 'node:timers/promises';
import {
  type CaseSeedInput,
  type Clock,
  type EffectView,
  type FaultInput,
  type GrantEffectView,
  type GrantLedgerEntry,
  type LedgerEntry,
  startSandbox,
} from '../index.ts';

/** What a test sees of an answer. `json` is null when the body is no JSON. */
export interface Seen {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

/** 2026-01-01T00:00:00.000Z; tests compare times, so the clock starts at a fixed one and moves by hand. */
export const START = Date.UTC(2026, 0, 1);

export const SEED = {
  tenant_id: 'tenant_a',
  request_id: 'req_1',
  order_id: 'ord_1',
  payment_id: 'pay_1',
  amount_minor: 5000,
  currency: 'USD',
} as const satisfies CaseSeedInput;

export const REFUND = {
  payment_id: 'pay_1',
  amount: 1999,
  currency: 'USD',
  reason: 'duplicate_charge',
  metadata: { run_id: 'run_1' },
} as const;

export const GRANT = { customer_id: 'cus_ord_1', amount: 500, currency: 'USD', memo: 'run_1 sorry' } as const;

export interface CallOptions {
  readonly key?: string | null;
  readonly bearer?: string | null;
  readonly signal?: AbortSignal;
}

/** A sandbox on a free port and the calls that its tests make. Each instance has a stopped clock of its own, unless another is given. */
export async function sandboxUnderTest(clock: Clock = () => START) {
  const sandbox = await startSandbox({ clock });
  const call = async (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) => {
    const response = await fetch(sandbox.url + path, {
      method,
      headers,
      redirect: 'manual',
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    return see(response);
  };
  const refund = async (body: unknown, options: CallOptions = {}): Promise<Seen> => {
    const { key = 'key_1', bearer = 'sk_sandbox', signal } = options;
    const headers: Record<string, string> = { 'content-type': 'application/json' };
    if (key !== null) headers['idempotency-key'] = key;
    if (bearer !== null) headers.authorization = `Bearer ${bearer}`;
    const response = await fetch(`${sandbox.url}/payments/refunds`, {
      method: 'POST',
      headers,
      redirect: 'manual',
      body: typeof body === 'string' ? body : JSON.stringify(body),
      ...(signal === undefined ? {} : { signal }),
    });
    return see(response);
  };
  const grant = async (body: unknown, bearer: string | null = 'sk_sandbox'): Promise<Seen> =>
    call('POST', '/credits/grants', body, {
      'content-type': 'application/json',
      ...(bearer === null ? {} : { authorization: `Bearer ${bearer}` }),
    });
  const read = async (path: string, bearer = 'rk_sandbox') =>
    call('GET', path, undefined, { authorization: `Bearer ${bearer}` });
  const ledger = async (paymentId?: string): Promise<LedgerEntry[]> => {
    const seen = await call('GET', `/admin/ledger${paymentId === undefined ? '' : `?payment_id=${paymentId}`}`);
    return seen.json.entries as LedgerEntry[];
  };
  const effects = async (paymentId = 'pay_1'): Promise<EffectView[]> => {
    const seen = await call('GET', `/admin/effects?payment_id=${paymentId}`);
    return seen.json.effects as EffectView[];
  };
  return {
    url: sandbox.url,
    port: sandbox.port,
    close: sandbox.close,
    call,
    refund,
    grant,
    read,
    ledger,
    effects,
    grantLedger: async (customerId = 'cus_ord_1') =>
      (await call('GET', `/admin/credits/ledger?customer_id=${customerId}`)).json.entries as GrantLedgerEntry[],
    grantEffects: async (customerId = 'cus_ord_1') =>
      (await call('GET', `/admin/credits/effects?customer_id=${customerId}`)).json.effects as GrantEffectView[],
    armCredits: async (fault: FaultInput | readonly FaultInput[]) =>
      call('PUT', '/admin/credits/faults/cus_ord_1', fault),
    seed: async (change: Partial<CaseSeedInput> = {}) => call('POST', '/admin/cases', { ...SEED, ...change }),
    arm: async (fault: FaultInput | readonly FaultInput[]) => call('PUT', '/admin/faults/pay_1', fault),
    advance: async (ms: number) => call('POST', '/admin/clock', { advance_ms: ms }),
    reset: async () => call('POST', '/admin/reset'),
    /** The ledger, once `ready` holds for it; the server learns of an abort a little after the client. */
    ledgerWhen: async (ready: (entries: LedgerEntry[]) => boolean): Promise<LedgerEntry[]> => {
      for (let look = 0; look < 500; look += 1) {
        const entries = await ledger();
        if (ready(entries)) return entries;
        await sleep(5);
      }
      throw new Error('the ledger never got there');
    },
  };
}

export type SandboxUnderTest = Awaited<ReturnType<typeof sandboxUnderTest>>;

async function see(response: Response): Promise<Seen> {
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, json: jsonOrEmpty(text) };
}

function jsonOrEmpty(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}
