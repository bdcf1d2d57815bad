// Preloaded by start.mjs: when that process is gone, however it ended, this one ends as if by SIGTERM.
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
process.channel?.unref(); // The channel alone must not keep the process alive.
