import { CommanderError } from 'commander';
import { describe, expect, test } from 'vitest';
import { createProgram } from './program.ts';

async function refusal(...args: string[]): Promise<unknown> {
  const program = createProgram();
  const quiet = { writeOut: () => undefined, writeErr: () => undefined };
  const all = [program, ...program.commands, ...program.commands.flatMap((command) => command.commands)];
  for (const command of all) command.configureOutput(quiet);
  return await program.parseAsync(args, { from: 'user' }).then(
    () => undefined,
    (error: unknown) => error,
  );
}

describe('the command line', () => {
  test.each([
    [['up', '--port', '70000']],
    [['up', '--executors', '0']],
    [['up', '--tour-only', '--no-tour']],
    [['up', '--what']],
    [['up', '--hold', '--tour-only']],
    [['hold', 'set']],
    [['hold', 'release', '--reason', 'x']],
    [['doctor', '--service', 'nobody']],
    [['service', 'nobody']],
    [['service']],
    [['run', 'create']],
    [['run', 'show']],
    [['run', 'list', '--limit', '201']],
    [['key', 'create', '--tenant', 't', '--name', 'n']],
    [['key', 'create', '--tenant', 't', '--name', 'n', '--role', 'king']],
    [['key', 'create', '--tenant', 't', '--name', 'n', '--role', 'auditor', '--expires-in', '1.5d']],
    [['approve']],
    [['unknown']],
  ])('refuses %j as wrong usage', async (args) => {
    const error = await refusal(...args);
    expect(error).toBeInstanceOf(CommanderError);
    expect(error).toMatchObject({ exitCode: 1 });
  });

  test('every command has help with an example', async () => {
    const program = createProgram();
    const leaves = program.commands.flatMap((command) => (command.commands.length > 0 ? command.commands : [command]));
    expect(leaves).toHaveLength(16);
    for (const command of leaves) {
      let help = '';
      command.configureOutput({
        writeOut: (text) => {
          help += text;
        },
      });
      command.outputHelp();
      expect(help).toMatch(/Examples?:\n {2}.*counterstamp /s);
    }
  });
});
