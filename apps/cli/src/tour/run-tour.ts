import { writeFile } from 'node:fs/promises';
import { connect, invitePerson } from '@counterstamp/manifest-store';
import { randomIds } from '@counterstamp/stage-runtime';
import { CliFailure, EXIT } from '../failure.ts';
import { DEMO_SIGNERS, DEMO_TENANTS, demoName } from '../up/demo-keys.ts';
import { readDemoKeys, runningFleet, stateFolder } from '../up/state-folder.ts';
import { GROUPS } from './groups.ts';
import { play, type Verdict } from './play.ts';
import { readStranger, verifyReceipts } from './receipts.ts';
import type { Holder } from './scenario.ts';
import { enrolSigner, type Signer, type Signers } from './signers.ts';
import { createTools } from './tools.ts';

/** The last group: it needs every run to have ended. */
const RECEIPTS_TITLE = 'For a stranger';

/** Milliseconds that an invitation of the tour lives: it is used at once. */
const INVITATION_LIFE_MS = 60_000;

/**
 * Plays every scenario against the fleet of a state folder, all at the same time, and tells them in order.
 * @returns the exit code: 0 when everything was as expected.
 * @throws {CliFailure} when no fleet runs there, or its waits are too long for the tour.
 */
export async function runTour(state: string, output: { json: boolean; report: string | undefined }): Promise<number> {
  const folder = stateFolder(state);
  const fleet = await runningFleet(folder);
  const { api_url, sandbox_url, profile, origin, owner_url } = fleet ?? {};
  if (api_url === undefined || sandbox_url === undefined || origin === undefined || owner_url === undefined) {
    throw new CliFailure(
      `No fleet runs on ${folder.dir}.`,
      'Start one with `counterstamp up`, or name its folder with --fleet DIR.',
    );
  }
  if (profile !== 'fast') {
    throw new CliFailure(`The tour needs the waits of COUNTERSTAMP_PROFILE=fast; this fleet runs with ${profile}.`);
  }
  const signers = await signersOf({ api_url, origin, owner_url });
  const tools = createTools({ api_url, sandbox_url }, await readDemoKeys(folder), signers);
  const startedAt = performance.now();
  const write = (line: string) => {
    if (!output.json) process.stdout.write(`${line}\n`);
  };
  const playing = GROUPS.map(({ title, scenarios }) => ({ title, verdicts: scenarios.map((one) => play(one, tools)) }));
  const all: Verdict[] = [];
  const told: { title: string; verdicts: Verdict[] }[] = [];
  for (const { title, verdicts } of playing) {
    write(`\n${title}`);
    const group: Verdict[] = [];
    told.push({ title, verdicts: group });
    for (const one of verdicts) {
      const verdict = await one;
      all.push(verdict);
      group.push(verdict);
      for (const line of verdictLines(verdict)) write(line);
    }
  }
  const stranger = await readStranger(folder.trusted_keys, origin);
  const receipts = await verifyReceipts(tools, stranger);
  all.push(receipts);
  told.push({ title: RECEIPTS_TITLE, verdicts: [receipts] });
  for (const line of [`\n${RECEIPTS_TITLE}`, ...verdictLines(receipts)]) write(line);
  const wrong = all.filter((verdict) => !verdict.ok).length;
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  write(
    wrong === 0
      ? `\nTour: all ${all.length} as expected, in ${seconds} s`
      : `\nTour: ${wrong} of ${all.length} differ from what is expected, after ${seconds} s`,
  );
  if (output.report !== undefined) await writeFile(output.report, reportOf(told, seconds));
  if (output.json) process.stdout.write(`${JSON.stringify({ ok: wrong === 0, scenarios: all }, null, 2)}\n`);
  return wrong === 0 ? EXIT.ok : EXIT.refused;
}

/** Invites each approver of the demonstration, as the installation's owner does, and enrols their passkeys. */
async function signersOf({
  owner_url,
  ...fleet
}: {
  api_url: string;
  origin: string;
  owner_url: string;
}): Promise<Signers> {
  const sql = connect(owner_url, { max: 1, applicationName: 'counterstamp tour' });
  try {
    const signers = new Map<Holder, Signer>();
    for (const tenant_id of DEMO_TENANTS) {
      for (const person of DEMO_SIGNERS) {
        const name = demoName(person);
        const invited = await invitePerson(sql, randomIds, { tenant_id, name, expiresInMs: INVITATION_LIFE_MS });
        if (invited.kind === 'refused')
          throw new CliFailure(`${name} of ${tenant_id} cannot be invited: ${invited.code}.`);
        signers.set(`${tenant_id}/${person}`, await enrolSigner(fleet, invited.token));
      }
    }
    return signers;
  } finally {
    await sql.end({ timeout: 2 });
  }
}

/** One line when all is well; what differs, the run and its events when not. */
function verdictLines(verdict: Verdict): string[] {
  const { name, ok, expected, seen, run_id, trail = [] } = verdict;
  if (ok)
    return [
      `✓ ${name} — expected ${expected}; seen ${seen.startsWith(expected) ? `the same${seen.slice(expected.length)}` : seen}`,
    ];
  const line = `✗ ${name} — expected ${expected}; seen ${seen}`;
  return [
    line,
    ...verdict.differences.map((difference) => `    differs: ${difference}`),
    ...(run_id === undefined ? [] : [`    run ${run_id}`]),
    ...trail.map((event) => `    ${event}`),
  ];
}

/** The tour as a page: every scenario, expected against seen. */
function reportOf(groups: readonly { title: string; verdicts: readonly Verdict[] }[], seconds: string): string {
  const all = groups.flatMap(({ verdicts }) => verdicts);
  const cell = (text: string) => text.replaceAll('|', '\\|');
  return [
    '# The tour, expected against seen',
    '',
    `Written by \`counterstamp tour --report\` on ${new Date().toISOString().slice(0, 10)}, Node ${process.versions.node}, profile fast: ${all.filter((one) => one.ok).length} of ${all.length} as expected, in ${seconds} s. Only public HTTP: our API and the sandbox's.`,
    ...groups.flatMap(({ title, verdicts }) => [
      '',
      `## ${title}`,
      '',
      '| | scenario | expected | seen |',
      '|---|---|---|---|',
      ...verdicts.map(
        ({ ok, name, expected, seen }) => `| ${ok ? '✓' : '✗'} | ${cell(name)} | ${cell(expected)} | ${cell(seen)} |`,
      ),
    ]),
    '',
  ].join('\n');
}
