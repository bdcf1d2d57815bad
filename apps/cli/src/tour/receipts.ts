import { readFile } from 'node:fs/promises';
import { verifyReceipt } from '@counterstamp/receipts';
import { parseTrustedKeys, type TrustedKeys } from '@counterstamp/signatures';
import type { Verdict } from './play.ts';
import { READER, type Tools } from './tools.ts';

/** Runs that one page of the tour's list holds; the tour makes fewer. */
const RUNS_MAX = 200;

/** What a stranger to the installation has: its public keys and the origin of its console. */
export interface Stranger {
  keys: TrustedKeys;
  origin: string;
}

export async function readStranger(keysFile: string, origin: string): Promise<Stranger> {
  return { keys: parseTrustedKeys(await readFile(keysFile, 'utf8')), origin };
}

/** Fetches the receipt of every run of this tour, and verifies each from its bytes alone. Then one with another amount, which must not hold. */
export async function verifyReceipts(tools: Tools, { keys, origin }: Stranger): Promise<Verdict> {
  const startedAt = performance.now();
  const { runs } = await tools.as(READER).listRuns({ limit: RUNS_MAX });
  const mine = runs.filter((run) => run.request_id.startsWith(`case_${tools.prefix}`));
  const differences: string[] = [];
  let holding = 0;
  for (const { run_id } of mine) {
    const receipt = await tools.as(READER).receipt(run_id);
    const { ok, checks } = await verifyReceipt(receipt, keys, { origin });
    if (ok) holding += 1;
    const failed = checks.filter((check) => check.ok === false);
    differences.push(...failed.map(({ check, sentence }) => `${run_id}: ${check}: ${sentence}`));
  }
  const [first] = mine;
  const changed = first === undefined ? undefined : changedByOneByte(await tools.as(READER).receipt(first.run_id));
  const refused = changed !== undefined && !(await verifyReceipt(changed, keys, { origin })).ok;
  if (!refused) differences.push('a receipt with one byte changed holds');
  const expected = `${mine.length} of ${mine.length} receipts hold, one changed by a byte does not`;
  return {
    name: 'the receipt of every run of this tour, without the database',
    ok: differences.length === 0 && mine.length > 0,
    expected,
    seen: `${holding} of ${mine.length} receipts hold, one changed by a byte ${refused ? 'does not' : 'does'}`,
    differences,
    ms: Math.round(performance.now() - startedAt),
  };
}

function changedByOneByte<R extends { payload: string }>(receipt: R): R {
  const payload = Buffer.from(receipt.payload, 'base64').toString('utf8').replace('"currency', '"currencz');
  return { ...receipt, payload: Buffer.from(payload, 'utf8').toString('base64') };
}
