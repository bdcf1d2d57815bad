import { type Job, runJob } from './jobs.ts';

// One search, for the process that forked this one.
process.once('message', (job) => {
  process.send?.(runJob(job as Job), () => process.disconnect());
});
