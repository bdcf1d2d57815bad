import type { ApprovalCard, RunView, UntrustedText } from '@counterstamp/api-contract';
import { printable } from './table.ts';

/** Columns that a line of the card fills at most: what a terminal breaks by itself would go on at its edge, where only our own lines begin. */
const COLUMNS = 76;
/** Columns that are left for a value even beside a very long label. */
const VALUE_COLUMNS_MIN = 24;
/** Stands before whatever holds characters that could have deceived. */
const FLAG = '! ';
const PLAIN = '  ';

/** What an approver is asked about: of the card, or of the run where nobody decides any more. */
export type Asked = Pick<
  ApprovalCard,
  'facts' | 'action_digest' | 'approval_digest' | 'action_revision' | 'rule' | 'expires_at'
>;

/** What the run's approval asks for, as the run shows it; `undefined`: nothing yet. */
export function askedOf({ action, approval }: Pick<RunView, 'action' | 'approval'>): Asked | undefined {
  if (action === null || approval === null) return undefined;
  return { ...approval, facts: approval.display, action_digest: action.digest, rule: approval };
}

/** What an approver is asked about, as it is displayed, with the digests that a decision names. */
export function actionLines(asked: Asked | undefined): string[] {
  if (asked === undefined) return [];
  return [
    ...factLines(asked.facts),
    '',
    `action_digest    ${asked.action_digest}`,
    `approval_digest  ${asked.approval_digest}`,
    `action_revision  ${asked.action_revision}`,
    `policy           ${ruleText(asked.rule)}`,
    `expires          ${asked.expires_at}`,
  ];
}

function factLines(facts: Asked['facts']): string[] {
  const widest = Math.max(0, ...facts.map(({ label }) => label.length));
  const lines = facts.flatMap(({ label, value, flagged }) => {
    const [first = '', ...more] = valueLines(value, COLUMNS - FLAG.length - widest - 2);
    const indent = ' '.repeat(FLAG.length + widest + 2);
    return [
      `${flagged ? FLAG : PLAIN}${printable(label).padEnd(widest)}  ${first}`,
      ...more.map((line) => `${indent}${line}`),
    ];
  });
  return facts.some(({ flagged }) => flagged) ? [...lines, '', FLAG_MEANS] : lines;
}

const FLAG_MEANS = `${FLAG}holds characters that could deceive; each stands as ⟦U+…⟧`;

/** Texts that somebody wrote beside the facts, each under who wrote it and where it stood. */
export function untrustedLines(texts: readonly UntrustedText[]): string[] {
  const lines = texts.flatMap(({ label, source, member, text, flagged }) => [
    `${flagged ? FLAG : PLAIN}${printable(`${label}${member === null ? '' : `, ${member}`}, by ${source}:`)}`,
    ...valueLines(text, COLUMNS - FLAG.length - 4).map((line) => `${PLAIN}  > ${line}`),
  ]);
  return texts.some(({ flagged }) => flagged) ? [...lines, '', FLAG_MEANS] : lines;
}

/** A value of `displayText` in lines of our own width, broken behind a space where there is one. Nothing is left out. */
function valueLines(value: string, columns: number): string[] {
  const width = Math.max(columns, VALUE_COLUMNS_MIN);
  return value.split('\n').flatMap((line) => {
    const lines: string[] = [];
    let current = '';
    for (const word of printable(line).split(/(?<= )/u)) {
      if (current !== '' && columnsOf(current) + columnsOf(word.trimEnd()) > width) {
        lines.push(current);
        current = '';
      }
      for (const character of word) {
        if (columnsOf(current) + columnsOf(character) > width && character !== ' ') {
          lines.push(current);
          current = '';
        }
        current += character;
      }
    }
    return [...lines, current];
  });
}

/** Columns that a text takes at most: what is not printable ASCII may take two. */
function columnsOf(text: string): number {
  let columns = 0;
  for (const character of text) columns += character <= '~' ? 1 : 2;
  return columns;
}

function ruleText(rule: Asked['rule']): string {
  const { policy, policy_version, policy_rule, approvals_required, groups_required, method, break_glass } = rule;
  const groups = Object.entries(groups_required).map(([group, needed]) => `${needed} from ${group}`);
  return [
    `${policy} ${policy_version}, ${policy_rule}: ${approvals_required} approval${approvals_required === 1 ? '' : 's'} needed`,
    ...groups,
    ...(method === 'passkey' ? ['signed with a passkey'] : []),
    ...(break_glass ? ['or the glass broken by two'] : []),
  ].join(', ');
}
