/** Milliseconds for an orderly end after the supervisor is gone; above the longest grace of a profile. */
const END_MAX_MS = 40_000;

/** A supervised process ends in order, as by SIGTERM, when its supervisor is gone: the channel between them closes, however that happened. */
export function endWithParent(): void {
  if (process.channel === undefined) return;
  process.once('disconnect', () => {
    setTimeout(() => process.exit(1), END_MAX_MS).unref();
    process.kill(process.pid, 'SIGTERM');
  });
  process.channel?.unref(); // The channel alone must not keep the process alive.
}
