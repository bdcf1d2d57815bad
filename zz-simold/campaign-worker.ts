import { runShare, type Share } from './campaign.ts';

// Forked by main.ts; told its share of the seeds, answers with what came of them.
process.once('disconnect', () => process.exit());
process.once('message', (share) => {
  void runShare(share as Share).then((tally) => {
    process.send?.(tally, () => process.disconnect());
  });
});
