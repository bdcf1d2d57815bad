import { CommanderError } from 'commander';
import { describe, expect, test } from 'vitest';
import { EXIT } from './failure.ts';
import { createProgram } from './program.ts';

const RUN = 'run_0191c0de-0000-7000-8000-000000000000';

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
    [['alarm', 'list', '--limit', '0']],
    [['alarm', 'list', '--after', 'x']],
    [['hold', 'set']],
    [['hold', 'release', '--reason', 'x']],
    [['doctor', '--service', 'nobody']],
    [['service', 'nobody']],
    [['service']],
    [['run', 'create']],
    [['run', 'show']],
    [['run', 'cancel', RUN]],
    [['run', 'list', '--limit', '201']],
    [['key', 'create', '--tenant', 't', '--name', 'n']],
    [['key', 'create', '--tenant', 't', '--name', 'n', '--role', 'king']],
    [['key', 'create', '--tenant', 't', '--name', 'n', '--role', 'auditor', '--expires-in', '1.5d']],
    [['key', 'create', '--tenant', 't', '--name', 'n', '--role', 'break_glass']],
    [['key', 'list']],
    [['key', 'revoke']],
    [['person', 'add', '--tenant', 't', '--name', 'n']],
    [['person', 'add', '--tenant', 't', '--name', 'n', '--roles', 'approver,king']],
    [['person', 'invite', '--tenant', 't', '--name', 'n', '--expires-in', '25h']],
    [['person', 'link', '--tenant', 't', '--name', 'n', '--issuer', 'https://login.example.com']],
    [['passkey', 'revoke']],
    [['erase', '--tenant', 't']],
    [['retention', '--apply']],
    [['retention', '--keep', 'evidence=30']],
    [['retention', '--keep', 'evidence=30', '--apply', '--dry-run']],
    [['retention', '--keep', 'audit=30', '--apply']],
    [['retention', '--keep', 'evidence=soon', '--apply']],
    [['retention', '--keep', 'evidence=1', '--keep', 'evidence=2', '--apply']],
    [['verdict']],
    [['verdict', 'run_x', '--landed', '--evidence', 'x']],
    [['verdict', 'run_x', '--landed', '--revision', '0', '--evidence', 'x']],
    [['verdict', 'support', 'run_x', '--waive-fencing', '--reason', 'x']],
    [['verdict', 'support', 'run_x', '--waive-fencing', '--revision', '1']],
    [['reconcile', '--limit', '0']],
    [['instance', 'list', '--service', 'nobody']],
    [['instance', 'fence', 'ins_1']],
    [['receipt']],
    [['verify-receipt', '--keys', 'keys.json']],
    [['verify-checkpoints', '--keys', 'keys.json']],
    [['verify-checkpoints', 'checkpoints.jsonl']],
    [['signing-key', 'public']],
    [['signing-key', 'public', '--purposes', 'receipt,king']],
    [['signing-key', 'public', '--purposes', 'receipt,receipt']],
    [['approve']],
    [['unknown']],
  ])('refuses %j as wrong usage', async (args) => {
    const error = await refusal(...args);
    expect(error).toBeInstanceOf(CommanderError);
    expect(error).toMatchObject({ exitCode: 1 });
  });

  const SEEN = ['--revision', '12', '--evidence', 'x'];
  test.each([
    [['verdict', RUN, ...SEEN], 'No verdict is given.'],
    [['verdict', RUN, '--landed', '--still-unknown', ...SEEN], 'More than one verdict is given.'],
    [['verdict', 'record', RUN, '--did-not-land', ...SEEN], '--did-not-land needs --observed-at'],
    [['verdict', RUN, '--still-unknown', '--provider-ref', 're_1', ...SEEN], '--provider-ref belongs to --landed'],
    [['verdict', RUN, '--landed-differently', 'nowhere.json', ...SEEN], 'nowhere.json cannot be read'],
    [['verdict', 'order_7', '--landed', ...SEEN], '"order_7" is no run id.'],
    [['verdict', 'support', RUN, '--revision', '12', '--reason', 'x'], 'One kind of support is needed.'],
    [
      ['verdict', 'support', RUN, '--confirm-difference', 'sha256:0', '--revision', '12', '--reason', 'x'],
      '"sha256:0" is no digest.',
    ],
    [['reconcile', '--look-again'], '--look-again needs a run.'],
    [['reconcile', 'order_7'], '"order_7" is no run id.'],
    [['person', 'set', '--tenant', 't', '--name', 'n'], 'Nothing is given to set.'],
    [['person', 'add', '--tenant', 't', '--name', 'a b', '--roles', 'auditor'], '--name "a b" must start with'],
    [
      ['person', 'add', '--tenant', 't', '--name', 'n', '--roles', 'auditor', '--groups', 'x,!'],
      '--groups "!" must start',
    ],
    [
      ['person', 'link', '--tenant', 't', '--name', 'n', '--issuer', 'http://login.example.com', '--subject', 'x'],
      '"http://login.example.com" is no issuer.',
    ],
    [
      ['person', 'link', '--tenant', 't', '--name', 'n', '--issuer', 'https://login.example.com', '--subject', 'é'],
      '--subject must be 1 to 255 printable ASCII characters.',
    ],
    [['key', 'revoke', 'csk_secret'], 'That is no key id'],
    [['receipt', 'order_7'], '"order_7" is no run id.'],
    [['run', 'cancel', 'order_7', '--reason', 'x'], '"order_7" is no run id.'],
    [['hold', 'set', '--owner', '--connector', 'x', '--reason', 'x'], 'As the owner, everything is held.'],
    [['restore', 'check', '--since', 'lunch'], '"lunch" is no time.'],
    [['restore', 'check', '--effects', 'nowhere.json'], 'nowhere.json cannot be read'],
  ])('says of %j what is missing, before any API or database is asked', async (args, sentence) => {
    const error = await refusal(...args);
    expect(error).toMatchObject({ name: 'CliFailure', exit: EXIT.usage });
    expect(String(error)).toContain(sentence);
  });

  test('every command has help with an example', async () => {
    const program = createProgram();
    const leaves = program.commands.flatMap((command) => (command.commands.length > 0 ? command.commands : [command]));
    expect(leaves.length).toBeGreaterThan(40);
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
