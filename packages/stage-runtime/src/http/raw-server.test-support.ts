import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';

export interface RawServer {
  readonly port: number;
  /** `http(s)://127.0.0.1:port/`. */
  readonly url: string;
  /** Connections accepted. */
  connections(): number;
  /** Everything received on each connection, in order of acceptance. */
  received(): string[];
  close(): Promise<void>;
}

/** A server that knows no HTTP: it records bytes, and `behave` decides what happens on each connection. */
export function rawServer(
  behave: (socket: net.Socket, received: () => string, index: number) => void,
  secure?: { key: string; cert: string },
): Promise<RawServer> {
  const sockets: net.Socket[] = [];
  const buffers: Buffer[][] = [];
  const onSocket = (socket: net.Socket): void => {
    const index = sockets.push(socket) - 1;
    const chunks: Buffer[] = [];
    buffers.push(chunks);
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    behave(socket, () => Buffer.concat(chunks).toString('latin1'), index);
  };
  const server =
    secure === undefined ? net.createServer({ allowHalfOpen: true }, onSocket) : tls.createServer(secure, onSocket);
  server.on('tlsClientError', () => {});
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      const port = address !== null && typeof address === 'object' ? address.port : 0;
      resolve({
        port,
        url: `${secure === undefined ? 'http' : 'https'}://127.0.0.1:${port}/`,
        connections: () => sockets.length,
        received: () => buffers.map((chunks) => Buffer.concat(chunks).toString('latin1')),
        close: () =>
          new Promise((closed) => {
            for (const socket of sockets) socket.destroy();
            server.close(() => closed());
          }),
      });
    });
  });
}

/** A fresh key and certificate for 127.0.0.1. */
export function selfSigned(): { key: string; cert: string } {
  const dir = mkdtempSync(join(tmpdir(), 'counterstamp-tls-'));
  try {
    const key = join(dir, 'key.pem');
    const cert = join(dir, 'cert.pem');
    const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
    execFileSync('openssl', ['req', '-x509', ...curve, '-keyout', key, '-out', cert, '-days', '2', ...subject], {
      stdio: 'ignore',
    });
    return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Whether a whole request, headers and announced body, has arrived. */
export function isWhole(received: string): boolean {
  const headEnd = received.indexOf('\r\n\r\n');
  if (headEnd === -1) return false;
  const length = Number(/content-length: (\d+)/i.exec(received)?.[1] ?? 0);
  return received.length >= headEnd + 4 + length;
}

/** Calls back once, when the first whole request has arrived on this connection. */
export function onRequest(socket: net.Socket, received: () => string, callback: () => void): void {
  let done = false;
  socket.on('data', () => {
    if (done || !isWhole(received())) return;
    done = true;
    callback();
  });
}
