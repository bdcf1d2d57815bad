import type { Ledger } from '@counterstamp/history-checker';
import { z } from 'zod';
import { CliFailure } from '../failure.ts';

/** Milliseconds for the whole ledger. */
const TIMEOUT_MS = 30_000;

const text = z.string().nullable();
const LedgerBody = z.object({
  since: z.iso.datetime(),
  requests: z.array(
    z.object({
      provider: z.string(),
      seq: z.int(),
      arrived_at: z.iso.datetime(),
      run_id: text,
      idempotency_key: text,
      body_digest: text,
    }),
  ),
  effects: z.array(
    z.object({
      provider: z.string(),
      ref: z.string(),
      request_seq: z.int().nullable(),
      run_id: text,
      idempotency_key: text,
      action_digest: text,
      settlement: z.enum(['final', 'pending', 'failed', 'unrecognised']),
      fields: z.record(z.string(), z.union([z.string(), z.number()])),
    }),
  ),
});

/**
 * What arrived at the providers of a sandbox and what they booked, over its admin side.
 * @throws {CliFailure} when nobody answers there, or something that is no sandbox.
 */
export async function readLedger(url: string): Promise<Ledger> {
  const address = `${url.replace(/\/+$/, '')}/admin/history`;
  const failure = (why: string) =>
    new CliFailure(
      `The ledger cannot be read from ${address}: ${why}.`,
      'Give the base URL of a running sandbox with --ledger, or leave the ledger out with --no-ledger.',
    );
  let body: unknown;
  try {
    const response = await fetch(address, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!response.ok) throw failure(`it answered ${response.status}`);
    body = await response.json();
  } catch (error) {
    if (error instanceof CliFailure) throw error;
    // Node's fetch keeps the reason in the cause.
    const reason = error instanceof Error ? (error.cause ?? error) : error;
    throw failure(reason instanceof Error ? reason.message : String(reason));
  }
  const ledger = LedgerBody.safeParse(body);
  if (!ledger.success) throw failure('it is no ledger of this version');
  return ledger.data;
}
