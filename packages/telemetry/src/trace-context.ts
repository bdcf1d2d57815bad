import { type RunId, uuidOfRunId } from '@counterstamp/manifest-core';

/** W3C trace context: version, trace id, parent id, flags; zeroes and version ff are invalid by the standard. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})$/;

/** What a run is traced by: its id, and the W3C `traceparent` that is kept with it. */
export interface TracedRun {
  run_id: RunId;
  trace_context: string | null;
}

export interface TraceParent {
  trace_id: string;
  span_id: string;
  sampled: boolean;
}

/** What a `traceparent` says; `undefined` when it is not a valid one. */
export function parseTraceparent(text: string | null): TraceParent | undefined {
  const [, trace_id, span_id, flags] = TRACEPARENT.exec(text ?? '') ?? [];
  if (trace_id === undefined || span_id === undefined || flags === undefined) return undefined;
  return { trace_id, span_id, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export function traceparentOf({ trace_id, span_id, sampled }: TraceParent): string {
  return `00-${trace_id}-${span_id}-${sampled ? '01' : '00'}`;
}

/**
 * The trace of a run that has no context, because nobody traced when it was created: its UUID, which is 16 bytes like a trace id. So all
 * workers find each other without storing anything.
 */
export function traceIdOfRun(run_id: RunId): string {
  return uuidOfRunId(run_id).replaceAll('-', '');
}
