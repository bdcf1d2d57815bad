import net from 'node:net';

/** A TCP proxy in front of a server that others use too: an outage for one test only. */
export interface FaultProxy {
  readonly port: number;
  /** Resets every connection and refuses new ones. */
  cut(): Promise<void>;
  /** Keeps and accepts connections and forwards nothing, as a network that drops packets does. */
  freeze(): void;
  /** Forwards again; what was held back is delivered. */
  restore(): Promise<void>;
  /** Connections accepted so far. */
  accepted(): number;
  close(): Promise<void>;
}

export async function startFaultProxy(target: { host: string; port: number }): Promise<FaultProxy> {
  const pairs = new Set<[net.Socket, net.Socket]>();
  let frozen = false;
  let accepted = 0;
  const server = net.createServer((inner) => {
    accepted += 1;
    const outer = net.connect(target.port, target.host);
    const pair: [net.Socket, net.Socket] = [inner, outer];
    pairs.add(pair);
    const end = (): void => {
      pairs.delete(pair);
      inner.destroy();
      outer.destroy();
    };
    for (const socket of pair) {
      socket.on('error', end);
      socket.on('close', end);
    }
    inner.on('data', (chunk) => outer.write(chunk));
    outer.on('data', (chunk) => inner.write(chunk));
    if (frozen) for (const socket of pair) socket.pause();
  });
  const listen = (port: number): Promise<number> =>
    new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, '127.0.0.1', () => {
        server.removeListener('error', reject);
        const address = server.address();
        if (address === null || typeof address !== 'object') reject(new Error('no port'));
        else resolve(address.port);
      });
    });
  const port = await listen(0);

  const cut = async (): Promise<void> => {
    const closed = server.listening ? new Promise((resolve) => server.close(resolve)) : Promise.resolve();
    for (const [inner, outer] of pairs) {
      inner.resetAndDestroy();
      outer.destroy();
    }
    await closed;
  };
  return {
    port,
    cut,
    freeze: () => {
      frozen = true;
      for (const pair of pairs) for (const socket of pair) socket.pause();
    },
    restore: async () => {
      frozen = false;
      if (!server.listening) await listen(port);
      for (const pair of pairs) for (const socket of pair) socket.resume();
    },
    accepted: () => accepted,
    close: cut,
  };
}
