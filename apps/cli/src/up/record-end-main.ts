import { hostname } from 'node:os';
import { connect, endProcess } from '@counterstamp/manifest-store';

// A process of its own, as prepare-main: the supervisor keeps no driver in its memory for an event that hardly ever happens.

/** What the supervisor saw end, and where to record it. */
export interface RecordEndRequest {
  owner_url: string;
  pid: number;
  /** As a person reads it: `SIGKILL`, `exit code 70`. */
  how: string;
}

process.once('message', (message) => {
  recordEnd(message as RecordEndRequest) // From this version's own `up`, a moment ago.
    .then(() => process.exit(0))
    .catch((error: unknown) => {
      process.stderr.write(error instanceof Error ? error.message : String(error));
      process.exit(1);
    });
});
process.once('disconnect', () => process.exit(1));

async function recordEnd({ owner_url, pid, how }: RecordEndRequest): Promise<void> {
  const owner = connect(owner_url, { max: 1, applicationName: 'counterstamp up' });
  try {
    await endProcess(owner, { host: hostname(), pid }, `its supervisor saw the process end with ${how}`);
  } finally {
    await owner.end({ timeout: 1 });
  }
}
