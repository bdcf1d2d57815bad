import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** One span as it arrived. */
export interface ReceivedSpan {
  service: string;
  trace_id: string;
  span_id: string;
  /** Empty: none. */
  parent_id: string;
  name: string;
  /** 1 internal, 2 server. */
  kind: number;
  started: bigint;
  attributes: Record<string, string | number | boolean>;
  /** Whether it ended with an error, and what it said of it. */
  failed: boolean;
  status_message: string;
  events: number;
  links: { trace_id: string; span_id: string }[];
}

/** A collector of OTLP over HTTP in JSON, on this machine. */
export interface Collector {
  url: string;
  spans: ReceivedSpan[];
  /** Every body as it arrived, for whoever looks for a word in it. */
  bodies: string[];
  /** Authorization headers of the deliveries. */
  authorizations: Set<string>;
  /** Takes requests from now on and answers none. */
  hang(): void;
  /** Requests that are held open. */
  held(): number;
  close(): Promise<void>;
}

interface OtlpValue {
  stringValue?: string;
  intValue?: number | string;
  doubleValue?: number;
  boolValue?: boolean;
}
type OtlpAttributes = { key: string; value: OtlpValue }[];
interface OtlpBody {
  resourceSpans: {
    resource: { attributes: OtlpAttributes };
    scopeSpans: {
      spans: {
        traceId: string;
        spanId: string;
        parentSpanId?: string;
        name: string;
        kind: number;
        startTimeUnixNano: string;
        attributes?: OtlpAttributes;
        events?: unknown[];
        links?: { traceId: string; spanId: string }[];
        status?: { code?: number; message?: string };
      }[];
    }[];
  }[];
}

/** Starts a collector at any free port of this machine. */
export async function startCollector(): Promise<Collector> {
  const spans: ReceivedSpan[] = [];
  const bodies: string[] = [];
  const authorizations = new Set<string>();
  let hanging = false;
  let held = 0;
  const server = createServer((request, response) => {
    if (hanging) {
      held++;
      request.resume();
      response.once('close', () => held--);
      return;
    }
    let body = '';
    request.setEncoding('utf8').on('data', (part: string) => {
      body += part;
    });
    request.once('end', () => {
      if (request.method !== 'POST' || request.url !== '/v1/traces') {
        response.writeHead(404).end();
        return;
      }
      authorizations.add(request.headers.authorization ?? '');
      bodies.push(body);
      spans.push(...spansOf(JSON.parse(body) as OtlpBody));
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    bodies,
    authorizations,
    hang() {
      hanging = true;
    },
    held: () => held,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function spansOf({ resourceSpans }: OtlpBody): ReceivedSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const service = String(valuesOf(resource.attributes)['service.name']).replace('counterstamp-', '');
    return scopeSpans.flatMap((scope) =>
      scope.spans.map((span) => ({
        service,
        trace_id: span.traceId,
        span_id: span.spanId,
        parent_id: span.parentSpanId ?? '',
        name: span.name,
        kind: span.kind,
        started: BigInt(span.startTimeUnixNano),
        attributes: valuesOf(span.attributes ?? []),
        failed: span.status?.code === 2,
        status_message: span.status?.message ?? '',
        events: span.events?.length ?? 0,
        links: (span.links ?? []).map(({ traceId, spanId }) => ({ trace_id: traceId, span_id: spanId })),
      })),
    );
  });
}

function valuesOf(attributes: OtlpAttributes): ReceivedSpan['attributes'] {
  return Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      value.stringValue ?? value.boolValue ?? Number(value.intValue ?? value.doubleValue),
    ]),
  );
}
