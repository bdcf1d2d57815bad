import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { RecordEndRequest } from './record-end-main.ts';

/** Milliseconds; the database of a fleet that lost one process usually still answers. */
const RECORD_MS = 10_000;

/**
 * Records that a process of the fleet is gone (protocol rule 20), which only its supervisor knows for certain: a person's verdict on its runs
 * can rest on it. @returns why it could not be recorded; `undefined` when it was.
 */
export async function recordEnd(request: RecordEndRequest): Promise<string | undefined> {
  const child = fork(fileURLToPath(new URL('./record-end-main.js', import.meta.url)), {
    execArgv: [],
    detached: true,
    timeout: RECORD_MS,
    killSignal: 'SIGKILL',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let said = '';
  child.stderr?.on('data', (data: Buffer) => {
    said += data.toString();
  });
  try {
    child.send(request);
    const [code] = (await once(child, 'close')) as [number | null];
    if (code === 0) return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return said === '' ? `it did not end within ${RECORD_MS / 1_000} s` : said;
}
