/** Milliseconds between two looks at who our parent is. */
const LOOK_MS = 250;

/**
 * Ends this process as if by SIGTERM once the npm that runs it is gone. npm passes a signal to the shell between us, which dies of it
 * without telling us. Does nothing when a person started us directly: their shell may end before us.
 * @returns a function that ends the watch, for when another signal has come already.
 */
export function endWithNpm() {
  if (process.env.npm_lifecycle_event === undefined) return () => {};
  const parent = process.ppid;
  const look = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(look);
    process.kill(process.pid, 'SIGTERM');
  }, LOOK_MS);
  look.unref();
  return () => clearInterval(look);
}
