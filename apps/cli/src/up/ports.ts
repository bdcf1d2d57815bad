import net from 'node:net';
import { CliFailure } from '../failure.ts';

/** Where the api listens when nobody says otherwise and nobody is there. */
const API_PORT_DEFAULT = 8080;

/** A port of 127.0.0.1 that was free a moment ago. */
export async function anyFreePort(): Promise<number> {
  const { freePort } = await import('@counterstamp/embedded-postgres');
  return await freePort();
}

/**
 * The api's port: the wanted one (0: any), else the default, else any.
 * @throws {CliFailure} when the wanted one is taken.
 */
export async function apiPort(wanted: number | undefined, host: string): Promise<number> {
  if (wanted === 0) return await anyFreePort();
  if (await isFree(wanted ?? API_PORT_DEFAULT, host)) return wanted ?? API_PORT_DEFAULT;
  if (wanted === undefined) return await anyFreePort();
  throw new CliFailure(`Port ${wanted} is taken.`, 'Name another with --port N, or 0 for any free one.');
}

function isFree(port: number, host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once('error', () => resolve(false));
    server.listen(port, host, () => server.close(() => resolve(true)));
  });
}
