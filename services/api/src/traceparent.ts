import { parseTraceparent } from '@counterstamp/telemetry';

/** The request's trace context when it is a valid W3C `traceparent`, else null. */
export function traceparentOf(request: Request): string | null {
  const header = request.headers.get('traceparent');
  return parseTraceparent(header) === undefined ? null : header;
}
