import net from 'node:net';

/**
 * What happens to a connection whose first bytes match, from the moment that they are sent. `reply`: what the target answers.
 * `cut_request`: reset before anything reaches the target. `cut_reply`: the target gets it all, then the connection is reset.
 * `swallow`: accepted and never forwarded. `delay_request`: forwarded later, whether or not anybody still waits. `delay_reply`: it comes later. `half_reply`: its first
 * half, then the end. `duplicate`: the same bytes go to the target on a second connection as well, whose answer nobody hears.
 */
export type TcpFault =
  | { kind: 'cut_request' }
  | { kind: 'cut_reply' }
  | { kind: 'swallow' }
  | { kind: 'delay_request'; ms: number }
  | { kind: 'delay_reply'; ms: number }
  | { kind: 'half_reply' }
  | { kind: 'duplicate' };

/** A TCP proxy in front of one server, in this process. */
export interface TcpProxy {
  readonly port: number;
  /** The next `times` connections whose first bytes begin with `prefix` meet the fault. Replaces what was set before. */
  meet(fault: TcpFault, options: { prefix: string; times: number }): void;
  /** Connections that met a fault since `meet`. */
  met(): number;
  /** Everything goes through untouched again; what was held is let go. */
  heal(): Promise<void>;
  /** Takes no new connection and keeps those that are open: connection refused. */
  refuse(): Promise<void>;
  /** Closes every connection in an orderly way; new ones are taken. */
  hangUp(): Promise<void>;
  /** Resets every connection and refuses new ones. */
  cut(): Promise<void>;
  /** From now on answers are held back, requests still pass: of every connection, or of one once it asked for something with the text. `heal` lets them go. */
  holdReplies(options?: { after: string }): void;
  close(): Promise<void>;
}

/** One client with its connection to the target. */
interface Pair {
  inner: net.Socket;
  outer: net.Socket;
  fault: TcpFault | undefined;
  /** The request so far, while a fault may want it again. */
  asked: Buffer[];
  holds: boolean;
  held: Buffer[];
}

export async function startTcpProxy(target: { host: string; port: number }): Promise<TcpProxy> {
  const pairs = new Set<Pair>();
  let set: { fault: TcpFault; prefix: string; left: number } | undefined;
  let met = 0;
  let holdAfter: string | undefined;

  const server = net.createServer((inner) => {
    const outer = net.connect(target.port, target.host);
    const pair: Pair = { inner, outer, fault: undefined, asked: [], holds: false, held: [] };
    pairs.add(pair);
    for (const socket of [inner, outer]) {
      socket.setNoDelay(true);
      socket.on('error', () => end(pair));
    }
    inner.on('close', () => end(pair));
    outer.on('close', () => {
      // What is held or late still has to arrive.
      if (pair.held.length > 0 || pair.fault?.kind === 'delay_reply') return;
      end(pair);
    });
    inner.on('end', () => outer.end());
    inner.on('data', (chunk: Buffer) => onRequest(pair, chunk));
    outer.on('data', (chunk: Buffer) => onReply(pair, chunk));
  });

  function end(pair: Pair): void {
    pairs.delete(pair);
    pair.inner.destroy();
    pair.outer.destroy();
  }

  function onRequest(pair: Pair, chunk: Buffer): void {
    if (set !== undefined) pair.asked.push(chunk);
    if (holdAfter !== undefined && chunk.includes(holdAfter)) pair.holds = true;
    if (
      pair.fault === undefined &&
      set !== undefined &&
      set.left > 0 &&
      chunk.toString('latin1').startsWith(set.prefix)
    ) {
      set.left -= 1;
      met += 1;
      pair.fault = set.fault;
    }
    switch (pair.fault?.kind) {
      case 'cut_request':
        pair.inner.resetAndDestroy();
        return;
      case 'swallow':
        return;
      case 'delay_request': {
        // On a connection of its own: the client may have given up by then.
        const { ms } = pair.fault;
        setTimeout(() => {
          const late = net.connect(target.port, target.host, () => late.write(Buffer.concat(pair.asked)));
          late.on('error', () => undefined);
          late.on('data', (answer: Buffer) => {
            pair.inner.write(answer);
            late.end();
          });
        }, ms).unref();
        return;
      }
      case 'duplicate': {
        pair.outer.write(chunk);
        const again = net.connect(target.port, target.host, () => again.end(Buffer.concat(pair.asked)));
        again.on('error', () => undefined);
        again.resume();
        return;
      }
      default:
        pair.outer.write(chunk);
    }
  }

  function onReply(pair: Pair, chunk: Buffer): void {
    const { inner, fault } = pair;
    if (pair.holds) {
      pair.held.push(chunk);
      return;
    }
    switch (fault?.kind) {
      case 'cut_reply':
        inner.resetAndDestroy();
        return;
      case 'delay_reply':
        setTimeout(() => inner.write(chunk), fault.ms);
        return;
      case 'half_reply':
        inner.end(chunk.subarray(0, Math.floor(chunk.length / 2)));
        return;
      default:
        inner.write(chunk);
    }
  }

  const listen = (port: number): Promise<number> =>
    new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, '127.0.0.1', () => {
        server.removeListener('error', reject);
        const address = server.address();
        if (address === null || typeof address === 'string') reject(new Error('the proxy has no TCP address'));
        else resolve(address.port);
      });
    });
  const port = await listen(0);
  const refuse = async (): Promise<void> => {
    if (server.listening) server.close(); // Ends listening at once; its callback would wait for the open connections.
  };
  const cut = async (): Promise<void> => {
    await refuse();
    for (const pair of pairs) {
      pair.inner.resetAndDestroy();
      end(pair);
    }
  };
  return {
    port,
    meet(fault, { prefix, times }) {
      set = { fault, prefix, left: times };
      met = 0;
    },
    met: () => met,
    async heal() {
      set = undefined;
      holdAfter = undefined;
      for (const pair of pairs) {
        pair.fault = undefined;
        pair.holds = false;
        pair.asked = [];
        for (const chunk of pair.held.splice(0)) pair.inner.write(chunk);
        if (pair.outer.destroyed) pair.inner.end();
      }
      if (!server.listening) await listen(port);
    },
    refuse,
    async hangUp() {
      for (const pair of pairs) end(pair);
    },
    cut,
    holdReplies(options) {
      holdAfter = options?.after ?? '';
      if (options === undefined) for (const pair of pairs) pair.holds = true;
    },
    close: cut,
  };
}
