import { spawn } from 'node:child_process';

/**
 * Ends what a killed test run leaves: reads its stdin until this process is gone, then interrupts every process named in the
 * folder's `*.guarded` files and removes the folder. SIGINT ends both Postgres (fast shutdown) and Redis.
 */
const SCRIPT = `cat >/dev/null
cd "$1" 2>/dev/null || exit 0
for file in *.guarded; do [ -f "$file" ] && kill -INT "$(cat "$file")"; done
sleep 5
rm -rf "$1"`;

export interface OrphanGuard {
  pidFileEnding: '.guarded';
  /** The run ended well and removed its folder: the guard finds nothing to do. */
  dismiss: () => void;
}

/** Starts a guard over `folder`, in its own session so that a killed process group leaves it alive. */
export function startOrphanGuard(folder: string): OrphanGuard {
  const guard = spawn('/bin/sh', ['-c', SCRIPT, 'counterstamp-orphan-guard', folder], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  guard.unref();
  return { pidFileEnding: '.guarded', dismiss: () => guard.stdin.end() };
}
