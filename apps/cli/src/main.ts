import { CommanderError } from 'commander';
import { EXIT, explain } from './failure.ts';
import { createProgram } from './program.ts';

// Whoever reads our output may end first (`… | head`): that must not keep us from ending in order.
process.stdout.on('error', () => undefined);
process.stderr.on('error', () => undefined);

try {
  await createProgram().parseAsync(process.argv);
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  } else {
    const { sentence, next, exit } = explain(error);
    process.stderr.write(`${sentence}\n${next === undefined ? '' : `${next}\n`}`);
    process.exitCode = exit;
  }
}
