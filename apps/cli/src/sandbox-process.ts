import { startSandbox } from '@counterstamp/sandbox';
import { CliFailure, EXIT } from './failure.ts';

/** Milliseconds for running requests after a signal; a request that hangs by order would hold the end up. */
const DRAIN_MS = 1_000;

/**
 * Runs the sandbox until it is told to end: SANDBOX_PORT (4010 by default, 0: any), SANDBOX_HOST.
 * @throws {CliFailure} when a variable is wrong or the port is taken.
 */
export async function runSandbox(env: Readonly<Record<string, string | undefined>>): Promise<void> {
  const text = env.SANDBOX_PORT ?? '4010';
  const port = Number(text);
  if (!/^[0-9]{1,5}$/.test(text) || port > 65_535) {
    throw new CliFailure('SANDBOX_PORT must be a port number, 0 for a free one.', undefined, EXIT.configuration);
  }
  const sandbox = await startSandbox({ port, host: env.SANDBOX_HOST ?? '127.0.0.1' }).catch((error: unknown) => {
    throw new CliFailure(
      `The sandbox cannot listen on port ${port}: ${error instanceof Error ? error.message : String(error)}.`,
      'Name another with SANDBOX_PORT.',
    );
  });
  log('listening', { url: sandbox.url, pid: process.pid });
  const signal = await new Promise<NodeJS.Signals>((resolve) => {
    process.once('SIGTERM', resolve);
    process.once('SIGINT', resolve);
  });
  log('draining', { signal });
  await sandbox.close({ drain_ms: DRAIN_MS });
  process.exit(EXIT.ok);
}

function log(message: string, fields: Readonly<Record<string, unknown>>): void {
  process.stdout.write(
    `${JSON.stringify({ level: 'info', at: new Date().toISOString(), service: 'sandbox', ...fields, message })}\n`,
  );
}
