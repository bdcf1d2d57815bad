import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { FailpointName, RunId } from '@counterstamp/manifest-core';
import { poll } from '../testing/fleet.ts';

/** What the process that reaches the place does. */
export type Deed = 'kill' | 'stop' | 'hold';

/** Places that are armed for a whole fleet while it runs; the first process that reaches one acts. */
export interface FailpointFolder {
  /** For COUNTERSTAMP_FAILPOINTS. */
  readonly setting: string;
  /** Without a run: whoever comes first, for whatever run. */
  arm(name: FailpointName, deed: Deed, run_id?: RunId): Promise<Armed>;
  /** How often each place has fired since the start, those included that are no line in the code. */
  fired(): ReadonlyMap<FailpointName, number>;
  /** Counts a place that is brought about from outside. */
  count(name: FailpointName): void;
  /** Takes back whatever did not fire, and lets go whatever is held. */
  clear(): Promise<void>;
}

export interface Armed {
  /** Waits until a process has reached the place. @returns its pid. */
  reached(boundMs?: number): Promise<number>;
  /** Whether it was reached. */
  wasReached(): Promise<boolean>;
  /** Lets a held process go on. */
  release(): Promise<void>;
}

export async function openFailpointFolder(folder: string): Promise<FailpointFolder> {
  await mkdir(folder, { recursive: true });
  const counts = new Map<FailpointName, number>();
  const count = (name: FailpointName) => counts.set(name, (counts.get(name) ?? 0) + 1);
  return {
    setting: `*=folder:${folder}`,
    async arm(name, deed, run_id) {
      const file = run_id === undefined ? name : `${name}@${run_id}`;
      // Armed in one step: a process must not read half a word.
      await writeFile(path.join(folder, `.${file}`), deed);
      await rename(path.join(folder, `.${file}`), path.join(folder, file));
      let pid: number | undefined;
      const look = async (): Promise<number | undefined> => {
        if (pid !== undefined) return pid;
        const start = `${file}.fired.`;
        const found = (await readdir(folder)).find((entry) => entry.startsWith(start));
        if (found === undefined) return undefined;
        pid = Number(found.slice(start.length));
        count(name);
        return pid;
      };
      const forget = async () => {
        if (pid !== undefined) await rm(path.join(folder, `${file}.fired.${pid}`), { force: true });
      };
      return {
        async reached(boundMs = 30_000) {
          await poll(async () => (await look()) !== undefined, boundMs, `nobody reached ${file}`);
          const reachedBy = pid ?? 0;
          if (deed !== 'hold') await forget();
          return reachedBy;
        },
        wasReached: async () => (await look()) !== undefined,
        release: forget,
      };
    },
    fired: () => counts,
    count,
    async clear() {
      for (const entry of await readdir(folder)) await rm(path.join(folder, entry), { force: true });
    },
  };
}
