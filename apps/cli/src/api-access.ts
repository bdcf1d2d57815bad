import type { ApiClient } from '@counterstamp/api-contract';
import type { Command } from 'commander';
import { CliFailure, EXIT } from './failure.ts';
import type { DemoPerson } from './up/demo-keys.ts';

/** Options of every command that talks to the api. */
export interface AccessOptions {
  url?: string;
  key?: string;
  as?: string;
  fleet: string;
}

/** Tenant whose demo keys are taken on a local fleet when nobody names one. */
const TENANT_DEFAULT = 'shop_north';

export function withAccess(command: Command): Command {
  return command
    .option('--url <url>', 'the API; else COUNTERSTAMP_URL, else the local fleet’s')
    .option('--key <key>', 'API key; else COUNTERSTAMP_KEY, else a demo key of the local fleet')
    .option('--as <who>', 'demo key of the local fleet: approver_2, shop_south/auditor, …')
    .option('--fleet <dir>', 'state folder of the local fleet', '.counterstamp');
}

/**
 * The api as the options, the environment or the local fleet name it.
 * @param person whose demo key serves when no key is given. A demo key is only ever sent to its own fleet.
 * @throws {CliFailure} when no api or no key is known.
 */
export async function openApi(options: AccessOptions, person: DemoPerson): Promise<ApiClient> {
  const given = options.url ?? nonEmpty(process.env.COUNTERSTAMP_URL);
  const key = options.as === undefined ? (options.key ?? nonEmpty(process.env.COUNTERSTAMP_KEY)) : undefined;
  if (given !== undefined && !(URL.canParse(given) && /^https?:$/.test(new URL(given).protocol))) {
    throw new CliFailure(`"${given}" is no http(s) URL.`, 'Write it as http://host:8080.', EXIT.usage);
  }
  const { createClient } = await import('@counterstamp/api-contract');
  if (given !== undefined && key !== undefined) return createClient({ baseUrl: given, key, fetch });

  const { readDemoKeys, runningFleet, stateFolder } = await import('./up/state-folder.ts');
  const folder = stateFolder(options.fleet);
  const fleet = await runningFleet(folder);
  const baseUrl = given ?? fleet?.api_url;
  if (baseUrl === undefined) {
    throw new CliFailure(
      fleet === undefined ? 'No API is named, and no local fleet runs.' : 'The local fleet is still starting.',
      'Start one with `counterstamp up`, or give --url and --key (COUNTERSTAMP_URL, COUNTERSTAMP_KEY).',
      EXIT.usage,
    );
  }
  if (key !== undefined) return createClient({ baseUrl, key, fetch });
  if (given !== undefined && given.replace(/\/+$/, '') !== fleet?.api_url) {
    throw new CliFailure(`No key is given for ${given}.`, 'Give one with --key or COUNTERSTAMP_KEY.', EXIT.usage);
  }
  const who = options.as ?? person;
  const [tenant, name] = who.includes('/') ? who.split('/') : [TENANT_DEFAULT, who];
  const keys = await readDemoKeys(folder);
  const demo = keys[tenant ?? '']?.[name ?? ''];
  if (demo === undefined) {
    const known = Object.entries(keys).flatMap(([of, people]) => Object.keys(people).map((one) => `${of}/${one}`));
    throw new CliFailure(`There is no demo key ${who}.`, `Known: ${known.join(', ') || 'none'}.`, EXIT.usage);
  }
  return createClient({ baseUrl, key: demo, fetch });
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
