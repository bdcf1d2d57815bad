import { existsSync, readFileSync, renameSync, writeSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { FAILPOINTS, type Failpoint, type FailpointName, type RunId } from '@counterstamp/manifest-core';

/** What a process under test does at a named place: ends as by SIGKILL, stops as by SIGSTOP, waits, or is held until the test lets it go. */
type FailpointDeed = { kind: 'kill' } | { kind: 'stop' } | { kind: 'wait'; ms: number } | { kind: 'hold' };

/**
 * A deed that is fixed at start, or a folder that is asked every time a place is reached. There a test arms a place while processes run, for all
 * of them at once: a file `<name>` or `<name>@<run id>` that contains the deed. The process that renames it to `<file>.fired.<pid>` is the one
 * that acts; `hold` ends when that file is removed.
 */
export type FailpointAction = Exclude<FailpointDeed, { kind: 'hold' }> | { kind: 'folder'; folder: string };

/**
 * Milliseconds before an asynchronous place kills or stops: what was handed to a socket before has then left the process. A driver's first use of
 * a statement takes a round trip before the call itself leaves, so turns of the event loop alone are not enough.
 */
const LEAVE_MS = 50;
/** Milliseconds that the thread waits after a signal to itself, which another thread may receive first: nothing runs on in between. */
const SIGNAL_MS = 100;
/** Milliseconds between two looks whether a hold is over. */
const HELD_MS = 10;

/** Production's failpoints: nothing happens. */
export const noFailpoints: Failpoint = { reach: () => Promise.resolve(), reachSync: () => undefined };

/**
 * Reads `name=kill`, `name=stop` or `name=wait:<ms>`, several joined by commas, or `*=folder:<path>` for every name.
 * @returns the faults as sentences when a name or an action is unknown.
 */
export function parseFailpoints(text: string): { actions: Map<FailpointName, FailpointAction>; faults: string[] } {
  const actions = new Map<FailpointName, FailpointAction>();
  const faults: string[] = [];
  for (const part of text.split(',').filter((piece) => piece !== '')) {
    const [name = '', action = ''] = part.split('=');
    const folder = name === '*' ? /^folder:(\/.+)$/.exec(action)?.[1] : undefined;
    if (folder !== undefined) {
      for (const point of FAILPOINTS) actions.set(point, { kind: 'folder', folder });
      continue;
    }
    const known = FAILPOINTS.find((point) => point === name);
    const deed = parseDeed(action);
    if (known === undefined)
      faults.push(`there is no failpoint ${JSON.stringify(name)}; known: ${FAILPOINTS.join(', ')}`);
    else if (deed !== undefined && deed.kind !== 'hold') actions.set(known, deed);
    else faults.push(`failpoint ${name} can kill, stop or wait:<ms>, not ${JSON.stringify(action)}`);
  }
  return { actions, faults };
}

function parseDeed(text: string): FailpointDeed | undefined {
  if (text === 'kill' || text === 'stop' || text === 'hold') return { kind: text };
  const wait = /^wait:(\d{1,6})$/.exec(text);
  return wait === null ? undefined : { kind: 'wait', ms: Number(wait[1]) };
}

/** A place that fires, and what it was armed with. `file`: what says so on disk, when it was armed there. */
interface Fired {
  deed: FailpointDeed;
  file?: string;
}

/**
 * Failpoints that act, each once. Only for development: the process shell refuses them elsewhere. One that fires first says so on stderr, in one
 * line of JSON {failpoint, run_id, pid, action}.
 */
export function armedFailpoints(actions: ReadonlyMap<FailpointName, FailpointAction>): Failpoint {
  const left = new Map(actions);
  const take = (name: FailpointName, run_id: RunId | undefined): Fired | undefined => {
    const action = left.get(name);
    if (action === undefined) return undefined;
    if (action.kind !== 'folder') left.delete(name);
    const fired = action.kind === 'folder' ? claim(action.folder, name, run_id) : { deed: action };
    if (fired !== undefined) report(name, run_id, fired.deed);
    return fired;
  };
  return {
    async reach(name, run_id) {
      const fired = take(name, run_id);
      if (fired === undefined) return;
      const { deed, file } = fired;
      if (deed.kind === 'wait') await delay(deed.ms);
      else if (deed.kind === 'hold') while (isHeld(file)) await delay(HELD_MS);
      else {
        await delay(LEAVE_MS);
        signal(deed.kind);
      }
    },
    reachSync(name, run_id) {
      const fired = take(name, run_id);
      if (fired === undefined) return;
      const { deed, file } = fired;
      if (deed.kind === 'wait') block(deed.ms);
      else if (deed.kind === 'hold') while (isHeld(file)) block(HELD_MS);
      else signal(deed.kind);
    },
  };
}

/** Takes what a test put into the folder for this place; `undefined` when there is nothing, or another process took it first. */
function claim(folder: string, name: FailpointName, run_id: RunId | undefined): Fired | undefined {
  const names = run_id === undefined ? [name] : [`${name}@${run_id}`, name];
  for (const armed of names) {
    const file = path.join(folder, `${armed}.fired.${process.pid}`);
    try {
      renameSync(path.join(folder, armed), file);
      const text = readFileSync(file, 'utf8').trim();
      const deed = parseDeed(text);
      if (deed === undefined)
        throw new Error(`${armed} says ${JSON.stringify(text)}, which is nothing that a failpoint can do`);
      return { deed, file };
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
    }
  }
  return undefined;
}

function isHeld(file: string | undefined): boolean {
  return file !== undefined && existsSync(file);
}

/** Written to the descriptor itself: what a logger still holds would die with the process. */
function report(failpoint: FailpointName, run_id: RunId | undefined, { kind: action }: FailpointDeed): void {
  try {
    writeSync(2, `${JSON.stringify({ failpoint, run_id: run_id ?? null, pid: process.pid, action })}\n`);
  } catch {
    // A full pipe: the folder's file says it as well.
  }
}

function signal(kind: 'kill' | 'stop'): void {
  process.kill(process.pid, kind === 'kill' ? 'SIGKILL' : 'SIGSTOP');
  block(SIGNAL_MS);
}

function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
