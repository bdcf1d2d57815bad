import { canonicalJson, type JsonObject, type JsonValue } from '@counterstamp/manifest-core';
import type { Sql } from '@counterstamp/manifest-store';
import { expect } from 'vitest';

/** A create body as it was sent. */
export interface Sent {
  input: JsonObject;
  proposal?: JsonObject;
  context?: JsonValue;
}

/** What stands in the database is, byte for byte, the canonical form of what was sent: nothing rounded, dropped or replaced. */
export async function expectUnchanged(owner: Sql, created: readonly { run_id: string; sent: Sent }[]): Promise<void> {
  const sentBy = new Map(created.map(({ run_id, sent }) => [run_id.slice('run_'.length), sent]));
  const rows = await owner<{ run_id: string; input_canonical: string; context: JsonValue; proposal: string | null }[]>`
    select i.run_id, i.input_canonical, i.context, p.body_canonical as proposal
    from cs.run_input i left join cs.proposal p on p.run_id = i.run_id and p.revision = 1
    where i.run_id = any (${`{${[...sentBy.keys()].join(',')}}`}::uuid[])`;
  expect(rows).toHaveLength(sentBy.size);
  for (const { run_id, input_canonical, context, proposal } of rows) {
    const sent = sentBy.get(run_id);
    if (sent === undefined) throw new Error('a run that nobody sent');
    expect(input_canonical).toBe(canonicalJson(sent.input));
    expect(proposal).toBe(sent.proposal === undefined ? null : canonicalJson(sent.proposal));
    expect(canonicalJson(context)).toBe(canonicalJson(sent.context ?? []));
  }
}
