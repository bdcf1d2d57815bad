/** What the process ends with. 78 is EX_CONFIG of sysexits.h: only a person can correct it, so a supervisor must not try again. */
export const EXIT = { ok: 0, refused: 1, usage: 2, configuration: 78 } as const;
export type Exit = (typeof EXIT)[keyof typeof EXIT];

/** Something that did not work and that a person can do something about: one sentence, and what to do next. */
export class CliFailure extends Error {
  override readonly name = 'CliFailure';
  readonly next: string | undefined;
  readonly exit: Exit;

  constructor(sentence: string, next?: string, exit: Exit = EXIT.refused) {
    super(sentence);
    this.next = next;
    this.exit = exit;
  }
}

/** The sentence, the next step and the exit code for whatever was thrown. Never a stack, never a password. */
export function explain(error: unknown): { sentence: string; next: string | undefined; exit: Exit } {
  if (error instanceof CliFailure) return { sentence: error.message, next: error.next, exit: error.exit };
  if (!(error instanceof Error)) return { sentence: String(error), next: undefined, exit: EXIT.refused };
  // By name: loading the classes would load the whole contract and the whole driver.
  if (error.name === 'ProblemError') return explainProblem(error);
  if (error.name === 'ApiUnreachable') {
    return {
      sentence: `The API gave no usable answer: ${firstLine(error.message)}.`,
      next: 'Start the fleet with `counterstamp up`, or correct --url. A command may have been carried out: repeating it unchanged is safe.',
      exit: EXIT.refused,
    };
  }
  return explainDatabase(error) ?? { sentence: firstLine(error.message), next: undefined, exit: EXIT.refused };
}

/** Outside development a key proves no person. */
export const WHERE_PEOPLE_DECIDE =
  'Whoever may approve signs in at the address of the installation (its COUNTERSTAMP_ORIGIN) and decides there with their passkey.';

/** Next steps for refusals of the api that have an obvious one. */
const NEXT_BY_CODE: Readonly<Record<string, string>> = {
  unauthenticated: 'Give a valid key with --key or COUNTERSTAMP_KEY; `counterstamp key create` makes one.',
  role_missing: 'Use a key whose role may do this; `counterstamp key create --role …` makes one.',
  not_an_approver: 'Decide with an approver’s key (--key, or --as approver on a local fleet).',
  self_approval: 'Another person has to decide.',
  approvals_need_development: WHERE_PEOPLE_DECIDE,
  card_not_bound: 'Decide nothing; docs/operations/alarms.md says how to look.',
  run_not_found: 'Check the run id and the key’s tenant with `counterstamp run list`.',
  digest_mismatch: 'Look again with `counterstamp run show RUN_ID` and decide on what it shows now.',
  stale_revision: 'Look again with `counterstamp run show RUN_ID`, then repeat the command.',
  not_in_doubt: 'Nothing is left to judge: see `counterstamp run show RUN_ID`.',
  not_settled: 'Run `counterstamp reconcile RUN_ID` after that time, look again, and give the time that it names.',
  evidence_stands: 'Find that effect at the external system, then record --landed or --landed-differently.',
  instance_not_fenced: '`counterstamp reconcile RUN_ID` shows each instance and what is missing.',
  second_person_needed:
    'They run `counterstamp verdict support RUN_ID --confirm-difference DIGEST --revision N --reason …`, having looked themselves; then repeat this command.',
  instance_not_found: 'See `counterstamp instance list`.',
  instance_alive: 'End the process first; `counterstamp instance list` shows where it runs.',
  idempotency_conflict: 'Use another request_id, or send the same body as the first time.',
  store_unavailable: 'Repeat the command unchanged in a moment.',
};

function explainProblem(error: Error): { sentence: string; next: string | undefined; exit: Exit } {
  const problem: unknown = 'problem' in error ? error.problem : undefined;
  if (typeof problem !== 'object' || problem === null || !('code' in problem) || !('status' in problem)) {
    return { sentence: error.message, next: undefined, exit: EXIT.refused };
  }
  const code = String(problem.code);
  const path = 'path' in problem && problem.path !== '' ? ` at ${String(problem.path)}` : '';
  const detail = 'detail' in problem ? String(problem.detail) : '';
  const recorded =
    'decisions' in problem && Array.isArray(problem.decisions) ? ` ${recordedDecisions(problem.decisions)}` : '';
  return {
    sentence: `The API refused (${String(problem.status)} ${code}${path}): ${detail}${recorded}`,
    next: Object.hasOwn(NEXT_BY_CODE, code) ? NEXT_BY_CODE[code] : undefined,
    exit: EXIT.refused,
  };
}

function recordedDecisions(decisions: readonly unknown[]): string {
  const lines = decisions.map((one) =>
    typeof one === 'object' && one !== null && 'decision' in one && 'principal_id' in one
      ? `${String(one.decision)} by ${String(one.principal_id)}`
      : '?',
  );
  return `Recorded: ${lines.join(', ')}.`;
}

function explainDatabase(error: Error): { sentence: string; next: string; exit: Exit } | undefined {
  const source = error.name === 'StoreUnavailable' && error.cause instanceof Error ? error.cause : error;
  const code = 'code' in source ? String(source.code) : '';
  if (/^(ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|CONNECT_TIMEOUT|CONNECTION_)/.test(code)) {
    return {
      sentence: `Postgres cannot be reached: ${firstLine(source.message)}.`,
      next: 'Start it, or correct DATABASE_URL.',
      exit: EXIT.refused,
    };
  }
  if (code.startsWith('28'))
    return {
      sentence: `Postgres refused the login: ${firstLine(source.message)}.`,
      next: 'Correct user and password in DATABASE_URL.',
      exit: EXIT.refused,
    };
  if (code === '3D000')
    return {
      sentence: `${firstLine(source.message)}.`,
      next: 'Create the database, or correct DATABASE_URL.',
      exit: EXIT.refused,
    };
  if (code === '42P01' || code === '3F000')
    return {
      sentence: 'This database has no Counterstamp schema yet.',
      next: 'Run `counterstamp migrate` with the same DATABASE_URL first.',
      exit: EXIT.refused,
    };
  return undefined;
}

function firstLine(message: string): string {
  return (message.split('\n')[0] ?? '').replace(/\.$/, '');
}
