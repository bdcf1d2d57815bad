import { setTimeout as delay } from 'node:timers/promises';
import { FAILPOINTS, type Failpoint, type FailpointName } from '@counterstamp/manifest-core';

/** What a process under test does at a named place: ends as by SIGKILL, stops as by SIGSTOP, or waits. */
export type FailpointAction = { kind: 'kill' } | { kind: 'stop' } | { kind: 'wait'; ms: number };

/** Production's failpoints: nothing happens. */
export const noFailpoints: Failpoint = { reach: () => Promise.resolve(), reachSync: () => undefined };

/**
 * Reads `name=kill`, `name=stop` or `name=wait:<ms>`, several joined by commas.
 * @returns the faults as sentences when a name or an action is unknown.
 */
export function parseFailpoints(text: string): { actions: Map<FailpointName, FailpointAction>; faults: string[] } {
  const actions = new Map<FailpointName, FailpointAction>();
  const faults: string[] = [];
  for (const part of text.split(',').filter((piece) => piece !== '')) {
    const [name = '', action = ''] = part.split('=');
    const known = FAILPOINTS.find((point) => point === name);
    const wait = /^wait:(\d{1,6})$/.exec(action);
    if (known === undefined)
      faults.push(`there is no failpoint ${JSON.stringify(name)}; known: ${FAILPOINTS.join(', ')}`);
    else if (action === 'kill' || action === 'stop') actions.set(known, { kind: action });
    else if (wait !== null) actions.set(known, { kind: 'wait', ms: Number(wait[1]) });
    else faults.push(`failpoint ${name} can kill, stop or wait:<ms>, not ${JSON.stringify(action)}`);
  }
  return { actions, faults };
}

/** Failpoints that act, each once. Only for development: the process shell refuses them elsewhere. */
export function armedFailpoints(actions: ReadonlyMap<FailpointName, FailpointAction>): Failpoint {
  const left = new Map(actions);
  const take = (name: FailpointName) => {
    const action = left.get(name);
    left.delete(name);
    return action;
  };
  const signal = (kind: 'kill' | 'stop') => process.kill(process.pid, kind === 'kill' ? 'SIGKILL' : 'SIGSTOP');
  return {
    async reach(name) {
      const action = take(name);
      if (action === undefined) return;
      if (action.kind === 'wait') await delay(action.ms);
      else signal(action.kind);
    },
    reachSync(name) {
      const action = take(name);
      if (action === undefined) return;
      if (action.kind === 'wait') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, action.ms);
      else signal(action.kind);
    },
  };
}
