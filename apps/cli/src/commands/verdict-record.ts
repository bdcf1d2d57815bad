import type { ObservedEffect, RunStanding, VerdictBody } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { readInput } from '../read-input.ts';
import { REVISION_MAX, wholeNumber } from './numbers.ts';

interface Options extends AccessOptions {
  landed?: true;
  didNotLand?: true;
  landedDifferently?: string;
  stillUnknown?: true;
  revision: number;
  evidence: string;
  observedAt?: string;
  providerRef?: string;
  json?: true;
}

/** `counterstamp verdict RUN_ID …`, also spelled `counterstamp verdict record RUN_ID …`. */
export function addVerdictRecord(verdict: Command): void {
  withAccess(
    verdict
      .command('record', { isDefault: true })
      .description('Record what you saw of an effect in doubt. The word `record` may be left out.')
      .usage('<run_id> --landed|--did-not-land|--landed-differently <file>|--still-unknown [options]')
      .argument('<run_id>')
      .option('--landed', 'it is there, as approved; the verifier still reads it for itself')
      .option('--did-not-land', 'it is not there: closes the run as failed; needs --observed-at')
      .option(
        '--landed-differently <file>',
        'it is there, and not as approved: the effect as JSON; - reads standard input',
      )
      .option('--still-unknown', 'you looked and cannot tell; the run stays parked')
      .requiredOption('--revision <n>', 'the revision that you looked at', wholeNumber(1, REVISION_MAX))
      .requiredOption('--evidence <text>', 'what you saw, and where')
      .option('--observed-at <time>', 'the time right before you looked, as `counterstamp reconcile` shows it')
      .option('--provider-ref <ref>', 'with --landed: the external system’s name for the effect')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText('after', VERDICT_EXAMPLES)
    .action(async (id: string, options: Options) => {
      const { parseRunId } = await import('./run-id.ts');
      const run_id = parseRunId(id);
      const body = await verdictOf(options);
      const standing = await (await openApi(options, 'operator')).verdict(run_id, body);
      if (options.json) printJson(standing);
      else printText(recordedText(run_id, body, standing));
    });
}

export const VERDICT_EXAMPLES = `
\`counterstamp reconcile RUN_ID\` shows what was sent and seen, and these commands with revision and time filled in. An effect file holds
provider_ref and status, amount_minor with currency where money moved, and target where that is what differs.

Examples:
  counterstamp verdict run_0191c0de-0000-7000-8000-000000000000 --landed --revision 12 --evidence "refund re_7 in the provider's dashboard"
  counterstamp verdict run_0191c0de-0000-7000-8000-000000000000 --did-not-land --revision 12 \\
    --observed-at 2026-01-31T09:30:00.000000Z --evidence "no refund of order_913 in the dashboard or the statement"
  counterstamp verdict run_0191c0de-0000-7000-8000-000000000000 --landed-differently effect.json --revision 12 --evidence "booked as 41.00"`;

/** @throws {CliFailure} unless exactly one verdict is given, with what it needs. */
async function verdictOf(options: Options): Promise<VerdictBody> {
  const { revision, evidence, landed, didNotLand, landedDifferently, stillUnknown, observedAt, providerRef } = options;
  const given = [landed, didNotLand, landedDifferently, stillUnknown].filter((one) => one !== undefined);
  if (given.length !== 1) {
    throw new CliFailure(
      given.length === 0 ? 'No verdict is given.' : 'More than one verdict is given.',
      'Give one of --landed, --did-not-land, --landed-differently FILE, --still-unknown.',
      EXIT.usage,
    );
  }
  if (providerRef !== undefined && !landed) {
    throw new CliFailure(
      '--provider-ref belongs to --landed.',
      'A different effect’s name stands in its file as provider_ref.',
      EXIT.usage,
    );
  }
  const seen = { revision, evidence };
  const looked = observedAt === undefined ? {} : { observed_at: observedAt };
  if (landed)
    return {
      ...seen,
      verdict: 'landed',
      ...looked,
      ...(providerRef === undefined ? {} : { provider_ref: providerRef }),
    };
  if (landedDifferently !== undefined)
    return { ...seen, verdict: 'landed_differently', ...looked, effect: await readEffect(landedDifferently) };
  if (stillUnknown) return { ...seen, verdict: 'still_unknown', ...looked };
  if (observedAt === undefined) {
    throw new CliFailure(
      '--did-not-land needs --observed-at: an absence counts only from a time on.',
      'Run `counterstamp reconcile RUN_ID`, look at the external system, and give the time that it showed.',
      EXIT.usage,
    );
  }
  return { ...seen, verdict: 'did_not_land', observed_at: observedAt };
}

/** As strictly as the api reads a body: what a lenient parser would settle here, the api could no longer refuse. */
async function readEffect(file: string): Promise<ObservedEffect> {
  const bytes = await readInput(file, '--landed-differently', 'the effect');
  const [{ parseStrictJson, parseWith }, { ObservedEffect: schema }] = await Promise.all([
    import('@counterstamp/manifest-core'),
    import('@counterstamp/api-contract'),
  ]);
  const json = parseStrictJson(new TextDecoder().decode(bytes));
  const effect = json.ok ? parseWith(schema, json.value) : json;
  if (effect.ok) return effect.value;
  const { code, path, detail } = effect.refusal;
  throw new CliFailure(
    `${file} is no observed effect (${code}${path === '' ? '' : ` at ${path}`}): ${detail}`,
    'Write it as {"provider_ref":"…","status":"…","amount_minor":4100,"currency":"USD"}.',
    EXIT.usage,
  );
}

function recordedText(run_id: RunId, { verdict }: VerdictBody, { state, revision }: RunStanding): string {
  const then = {
    landed: 'The verifier reads it for itself; only that completes the run.',
    did_not_land: 'It stays under watch: an effect that turns up later reopens it. A successor run may follow.',
    landed_differently: 'The outcome holds the observed effect.',
    still_unknown: 'It stays parked.',
    look_again: 'The fleet looks again.',
  }[verdict];
  return `Recorded. ${run_id} is ${state}, revision ${revision}. ${then}`;
}
