import type { CaseSeedInput } from '@counterstamp/sandbox';
import { z } from 'zod';

/** Milliseconds for one request to the sandbox's admin side. */
const TIMEOUT_MS = 5_000;

const Ledger = z.object({
  entries: z.array(z.object({ body: z.string().nullable(), run_id: z.string().nullable(), outcome: z.string() })),
});
const Effects = z.object({ effects: z.array(z.object({ amount: z.int(), currency: z.string(), status: z.string() })) });

/** The outside world as the tour prepares and inspects it. */
export interface SandboxClient {
  seedCase(seed: CaseSeedInput): Promise<void>;
  /** Refund requests that arrived for a payment, oldest first, whatever came of them. */
  requests(payment_id: string): Promise<z.infer<typeof Ledger>['entries']>;
  /** Somebody refunds at the provider's own desk. */
  refundByHand(payment_id: string, amount: number): Promise<void>;
  /** Refunds in the books. */
  refunds(payment_id: string): Promise<z.infer<typeof Effects>['effects']>;
}

export function createSandboxClient(baseUrl: string): SandboxClient {
  async function call(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await fetch(`${baseUrl}${path}`, {
      method,
      signal: AbortSignal.timeout(TIMEOUT_MS),
      ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`the sandbox answered ${response.status} to ${method} ${path}: ${text}`);
    return JSON.parse(text);
  }
  const of = (payment_id: string) => `payment_id=${encodeURIComponent(payment_id)}`;
  return {
    async seedCase(seed) {
      await call('POST', '/admin/cases', seed);
    },
    async refundByHand(payment_id, amount) {
      await call('POST', '/admin/refunds', { payment_id, amount });
    },
    requests: async (payment_id) => Ledger.parse(await call('GET', `/admin/ledger?${of(payment_id)}`)).entries,
    refunds: async (payment_id) => Effects.parse(await call('GET', `/admin/effects?${of(payment_id)}`)).effects,
  };
}
