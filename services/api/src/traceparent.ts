/** W3C trace context: version, trace id, parent id, flags; zeroes and version ff are invalid by the standard. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** The request's trace context when it is a valid W3C `traceparent`, else null. */
export function traceparentOf(request: Request): string | null {
  const header = request.headers.get('traceparent');
  return header !== null && TRACEPARENT.test(header) ? header : null;
}
