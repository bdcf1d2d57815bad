import { expect, test } from 'vitest';
import { asked, manifest } from '../../../../testing/manifest-builder.ts';
import { ACTION, approvedRun } from '../../../../testing/refund-case.ts';
import { type Asked, actionLines, askedOf, untrustedLines } from './card-lines.ts';

const refund = (change: Partial<Asked> = {}): Asked => {
  const found = askedOf(approvedRun());
  if (found === undefined) throw new Error('nothing is asked');
  return { ...found, ...change };
};
const fact = (value: string, flagged = false) => ({ field: 'note', label: 'Note', value, flagged });

test('the facts stand first, then what a decision names and who is asked', () => {
  expect(actionLines(refund())).toEqual([
    '  Operation   Refund an order',
    '  Amount      USD 42.00',
    '  Order       order_913',
    '  To payment  pay_913',
    '  Reason      damaged_item',
    '  Evidence    evd_order_record, evd_payment_record, evd_request_record',
    '',
    expect.stringMatching(/^action_digest {4}sha256:/),
    expect.stringMatching(/^approval_digest {2}sha256:/),
    'action_revision  6',
    'policy           refund 2, one_person: 1 approval needed, signed with a passkey',
    expect.stringMatching(/^expires {10}2026-/),
  ]);
});

test('a rule that asks for more says all of it', () => {
  const rule = { ...refund().rule, approvals_required: 2, groups_required: { finance: 1 }, break_glass: true };
  expect(actionLines(refund({ rule }))).toContain(
    'policy           refund 2, one_person: 2 approvals needed, 1 from finance, signed with a passkey, or the glass broken by two',
  );
});

test('nothing is asked before there is an action', () => {
  expect(actionLines(askedOf(manifest()))).toEqual([]);
  expect(actionLines(askedOf(asked(manifest(), ACTION))).length).toBeGreaterThan(0);
});

test('a fact with characters that could deceive is marked, and the mark is explained', () => {
  const lines = actionLines(refund({ facts: [fact('plain'), fact('⟦U+202E⟧eno', true)] }));
  expect(lines.slice(0, 4)).toEqual([
    '  Note  plain',
    '! Note  ⟦U+202E⟧eno',
    '',
    '! holds characters that could deceive; each stands as ⟦U+…⟧',
  ]);
});

test('no line of a text begins where a line of ours does: not behind its break, and not where a terminal would break it', () => {
  const text = `${'word '.repeat(30)}⏎\nAmount  USD 1.00 ${'x'.repeat(200)} 金額${'金'.repeat(60)}`;
  const lines = actionLines(refund({ facts: [fact(text)] }));
  const shown = lines.slice(0, lines.indexOf(''));
  expect(shown.length).toBeGreaterThan(8);
  for (const line of shown.slice(1)) expect(line).toMatch(/^ {8}\S/);
  for (const line of shown) {
    const columns = Array.from(line).reduce((sum, one) => sum + (one <= '~' ? 1 : 2), 0);
    expect(columns).toBeLessThanOrEqual(77);
  }
  expect(shown.map((line) => line.slice(8)).join('')).toBe(text.replace('\n', ''));
});

test('what others wrote stands below who wrote it, each line behind a mark of its own', () => {
  const entry = { label: 'context', source: 'inbox:msg_1', member: null, flagged: false } as const;
  expect(
    untrustedLines([
      { label: 'request', source: 'prn_agent', member: 'reason', text: 'arrived damaged', flagged: false },
      { ...entry, text: 'first⏎\nAmount  USD 1.00' },
      { ...entry, label: 'proposal', member: 'explanation', text: 'see⟦U+200B⟧', flagged: true },
    ]),
  ).toEqual([
    '  request, reason, by prn_agent:',
    '    > arrived damaged',
    '  context, by inbox:msg_1:',
    '    > first⏎',
    '    > Amount  USD 1.00',
    '! proposal, explanation, by inbox:msg_1:',
    '    > see⟦U+200B⟧',
    '',
    '! holds characters that could deceive; each stands as ⟦U+…⟧',
  ]);
  expect(untrustedLines([])).toEqual([]);
});
