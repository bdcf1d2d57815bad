import type { ApprovalCard, DecidedRun } from '@counterstamp/api-contract';
import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from './api-access.ts';
import { parseRunId } from './commands/run-id.ts';
import { CliFailure, EXIT, WHERE_PEOPLE_DECIDE } from './failure.ts';
import { printJson } from './output/print.ts';

interface DecideOptions extends AccessOptions {
  yes?: true;
  reason?: string;
  json?: true;
}

/** The two commands of an approver differ in one word. */
export function addDecision(program: Command, decision: 'approve' | 'reject', description: string): void {
  withAccess(
    program
      .command(decision)
      .description(description)
      .argument('<run_id>')
      .option('--reason <text>', 'recorded with the decision')
      .option('--yes', 'do not ask; for scripts that have shown the action themselves')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      `
The decision names the digests that were shown: should the action change meanwhile, it is refused.

Examples:
  counterstamp ${decision} run_0191c0de-0000-7000-8000-000000000000
  counterstamp ${decision} run_0191c0de-0000-7000-8000-000000000000 --as approver_2${decision === 'reject' ? ' --reason "wrong order"' : ''}`,
    )
    .action((id: string, options: DecideOptions) => decideRun(id, decision, options));
}

async function decideRun(id: string, decision: 'approve' | 'reject', options: DecideOptions): Promise<void> {
  const run_id = parseRunId(id);
  const client = await openApi(options, 'approver');
  const run = await client.getRun(run_id);
  if (run.state !== 'awaiting_approval' || run.approval === null) {
    const why = run.stop_reason === null ? '' : ` (${run.stop_reason.code})`;
    throw new CliFailure(
      `The run does not wait for a decision: it is ${run.state}${why}.`,
      `See \`counterstamp run show ${run_id}\`.`,
    );
  }
  const card = await client.approvalCard(run_id);
  await showCard(card);
  if (options.yes !== true) {
    // Nobody is asked for what would be refused whatever they answer.
    if (card.mine.why_not === 'approvals_need_development')
      throw new CliFailure('A key decides nothing here (approvals_need_development).', WHERE_PEOPLE_DECIDE);
    if (!(await agreed(decision))) throw new CliFailure('Nothing was decided.', undefined);
  }
  const decided = await client.decide(run_id, {
    approval_id: card.approval_id,
    decision,
    approval_digest: card.approval_digest,
    action_digest: card.action_digest,
    action_revision: card.action_revision,
    ...(options.reason === undefined ? {} : { reason: options.reason }),
  });
  if (options.json) printJson(decided);
  else process.stdout.write(`${decidedText(decided, card.rule.approvals_required)}\n`);
}

/** On standard error with `--json`'s reader in mind: standard output then holds the answer alone. */
async function showCard(card: ApprovalCard): Promise<void> {
  const [{ actionLines, untrustedLines }, { section, UNTRUSTED_TITLE }] = await Promise.all([
    import('./output/card-lines.ts'),
    import('./output/run-page.ts'),
  ]);
  const parts = [
    section(`${card.run_id} of ${card.tenant_id} asks for:`, actionLines(card)),
    section(UNTRUSTED_TITLE, untrustedLines(card.untrusted)),
  ];
  process.stderr.write(`${parts.filter((part) => part !== '').join('\n\n')}\n`);
}

async function agreed(decision: string): Promise<boolean> {
  if (!process.stdin.isTTY) {
    throw new CliFailure(
      'There is no terminal to ask at, so nothing was decided.',
      'Pass --yes once a person has read the action above.',
      EXIT.usage,
    );
  }
  const { createInterface } = await import('node:readline/promises');
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${decision} exactly this? [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}

function decidedText(decided: DecidedRun, needed: number): string {
  const approvals = decided.decisions.filter((one) => one.decision === 'approve').length;
  const what = decided.result === 'recorded' ? 'recorded' : 'was recorded before';
  const left =
    decided.decision.decision === 'approve' && approvals < needed ? `, ${approvals} of ${needed} approvals so far` : '';
  return `${decided.decision.decision} ${what} as ${decided.decision.principal_id}${left}; the run is ${decided.state}`;
}
