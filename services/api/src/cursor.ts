import { RunId, type State } from '@counterstamp/manifest-core';

/** Opaque to callers: the list it belongs to and the last run of the page. */
export function encodeCursor(last: RunId, state: State | undefined): string {
  return Buffer.from(`runs.v1 ${state ?? '*'} ${last}`).toString('base64url');
}

/** The run to go on after; `undefined` unless the cursor was made by the same list, in the one spelling that we make. */
export function decodeCursor(cursor: string, state: State | undefined): RunId | undefined {
  const last = RunId.safeParse(Buffer.from(cursor, 'base64url').toString('utf8').split(' ')[2]);
  return last.success && encodeCursor(last.data, state) === cursor ? last.data : undefined;
}
