import net from 'node:net';

/**
 * A TCP port that was free on 127.0.0.1 a moment ago. Nothing reserves it: bind soon, and try again on EADDRINUSE.
 * @throws {Error} when the system has no port to give.
 */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = net.createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => {
        if (address !== null && typeof address === 'object') resolve(address.port);
        else reject(new Error('the system gave no free port'));
      });
    });
  });
}
