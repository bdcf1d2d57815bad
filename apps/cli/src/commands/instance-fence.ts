import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';

interface Options extends AccessOptions {
  evidence: string;
  credentialRotated?: true;
  json?: true;
}

/** `counterstamp instance fence`. */
export function addInstanceFence(instance: Command): void {
  withAccess(
    instance
      .command('fence')
      .description(
        'Record that an instance is gone for good, so that an absence may be concluded for what it sent. Refused while it shows a sign of life.',
      )
      .argument('<instance_id>')
      .requiredOption('--evidence <text>', 'how you know that its process is gone')
      .option('--credential-rotated', 'the credential that it could send with is void; then it may even be alive')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      `
A process that is told to end (SIGTERM) records its end by itself, and \`counterstamp up\` records that of each process it loses.

Examples:
  counterstamp instance fence ins_0191c0de-0000-7000-8000-000000000000 --evidence "host n7 was powered off, ticket 4711"
  counterstamp instance fence ins_0191c0de-0000-7000-8000-000000000000 --credential-rotated --evidence "key sk_2 revoked at the provider"`,
    )
    .action(async (instance_id: string, options: Options) => {
      const client = await openApi(options, 'operator');
      const fenced = await client.fenceInstance(instance_id, {
        evidence: options.evidence,
        ...(options.credentialRotated === undefined ? {} : { credential_rotated: true }),
      });
      if (options.json) return printJson(fenced);
      printText(
        fenced.result === 'ended'
          ? `The end of ${instance_id} is recorded.`
          : `The end of ${instance_id} was recorded before; nothing changed.`,
      );
    });
}
