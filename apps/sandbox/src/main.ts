import { readConfig } from './config.ts';
import { type RunningSandbox, startSandbox } from './sandbox.ts';

/** Milliseconds for running requests after a signal. 5 s: below the 10 s after which container runtimes kill. */
const DRAIN_MS = 5_000;

/** Exit code for an environment that does not parse, EX_CONFIG of sysexits.h. */
const EXIT_CONFIG = 78;

function log(level: 'info' | 'error', msg: string, fields: Record<string, unknown> = {}): void {
  const stream = level === 'error' ? process.stderr : process.stdout;
  stream.write(`${JSON.stringify({ level, service: 'sandbox', msg, ...fields })}\n`);
}

function exitOnSignal(sandbox: RunningSandbox): void {
  const stop = (): void => {
    void sandbox.close({ drain_ms: DRAIN_MS }).then(() => process.exit(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

const read = readConfig(process.env);
if (read.ok) {
  try {
    const sandbox = await startSandbox(read.config);
    exitOnSignal(sandbox);
    log('info', 'listening', { url: sandbox.url });
  } catch (error) {
    log('error', 'cannot listen', { ...read.config, error: String(error) });
    process.exitCode = 1;
  }
} else {
  log('error', 'configuration', { problems: read.problems });
  process.exitCode = EXIT_CONFIG;
}
