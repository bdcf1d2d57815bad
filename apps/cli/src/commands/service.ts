import { Argument, type Command } from 'commander';
import { endWithParent } from '../end-with-parent.ts';
import { CliFailure } from '../failure.ts';

const NAMES = ['api', 'preflight', 'executor', 'verifier', 'reconciler', 'sandbox'] as const;
type Name = (typeof NAMES)[number];

type Environment = Readonly<Record<string, string | undefined>>;

/** One process in the foreground. Only what it needs is loaded. */
const RUN: Readonly<Record<Name, (env: Environment) => Promise<void>>> = {
  api: async (env) => (await import('@counterstamp/api')).runApi(env),
  preflight: async (env) => (await import('@counterstamp/preflight')).runPreflight(env),
  executor: async (env) => (await import('@counterstamp/executor')).runExecutor(env),
  verifier: async (env) => (await import('@counterstamp/verifier')).runVerifier(env),
  reconciler: async (env) => (await import('@counterstamp/reconciler')).runReconciler(env),
  sandbox: async (env) => (await import('../sandbox-process.ts')).runSandbox(env),
};

/** `counterstamp service NAME`. */
export function addService(program: Command): void {
  program
    .command('service')
    .description('Run one process in the foreground, configured by its environment; SIGTERM or Ctrl-C drains it.')
    .addArgument(new Argument('<name>', 'which one').choices(NAMES))
    .option('--join [DIR]', 'join the fleet that a local `counterstamp up` runs on this state folder')
    .addHelpText(
      'after',
      `
Examples:
  counterstamp service executor --join     one more executor for the local fleet
  COUNTERSTAMP_EXECUTOR_DATABASE_URL=… COUNTERSTAMP_SHOP_URL=… COUNTERSTAMP_PAYMENTS_URL=… \\
  COUNTERSTAMP_PAYMENTS_READ_KEY=… COUNTERSTAMP_PAYMENTS_WRITE_KEY=… REDIS_URL=… counterstamp service executor`,
    )
    .action(async (name: Name, options: { join?: string | true }) => {
      process.title = `counterstamp service ${name}`; // What `ps` shows.
      endWithParent();
      await RUN[name](options.join === undefined ? process.env : await joinedEnvironment(name, options.join));
    });
}

async function joinedEnvironment(name: Name, join: string | true): Promise<Environment> {
  const { runningFleet, STATE_DEFAULT, stateFolder } = await import('../up/state-folder.ts');
  const folder = stateFolder(join === true ? STATE_DEFAULT : join);
  const variables = (await runningFleet(folder))?.services?.[name];
  if (variables === undefined) {
    throw new CliFailure(
      name === 'sandbox' ? 'A fleet has exactly one sandbox.' : `No fleet runs on ${folder.dir}.`,
      name === 'sandbox' ? undefined : 'Start one with `counterstamp up`, or name its state folder: --join DIR.',
    );
  }
  return { COUNTERSTAMP_DEV: '1', COUNTERSTAMP_HTTP_PORT: '0', ...process.env, ...variables };
}
