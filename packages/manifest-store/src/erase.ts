import { answered, type Sql } from './connection.ts';

/** What an erasure did, or would do. */
export interface EraseOutcome {
  /** `open_runs`: nothing was done, since runs of the subject have not ended. `unknown`: nothing was ever sealed for this subject. */
  result: 'erased' | 'would_erase' | 'already_erased' | 'open_runs' | 'unknown';
  /** Runs of the subject whose personal data is sealed, and how many values that is: inputs, proposals, evidence. */
  runs: number;
  sealed_values: number;
  /** Of all its runs, those that have not ended. */
  open_runs: number;
  /** Runs of the subject that were recorded in plain text: destroying a key does not erase them. */
  unsealed: number;
  erased_at: string | null;
}

/**
 * Destroys the key of a subject, as the database's owner, and with it everything that is sealed under it, wherever it was copied to. Digests,
 * events and the actions themselves stay. A backup that holds the wrapped key still opens with the data key.
 * @param options `evenOpen`: also while runs of the subject are open, which then stop. `apply`: false only says what would be done.
 */
export async function eraseSubject(
  sql: Sql,
  whose: { tenant_id: string; subject: string },
  options: { evenOpen: boolean; apply: boolean },
): Promise<EraseOutcome> {
  const [row] = await answered(sql<EraseOutcome[]>`
    select result, runs, sealed_values, open_runs, unsealed, erased_at
      from cs.erase_subject(${whose.tenant_id}, ${whose.subject}, ${options.evenOpen}, ${options.apply})`);
  if (row === undefined) throw new Error('erase_subject returned nothing');
  return row;
}
