import type { OwnerChange, OwnerRefusalCode } from '@counterstamp/manifest-store';
import { CliFailure } from './failure.ts';

/** The sentence for each refusal, and what to do about it. */
const SAID: Readonly<Record<OwnerRefusalCode, (subject: string) => readonly [sentence: string, next?: string]>> = {
  person_unknown: (name) => [
    `The tenant has nobody of the name ${name}.`,
    '`counterstamp person list` shows who is there; `counterstamp person add` adds a person.',
  ],
  person_disabled: (name) => [`${name} is disabled.`, 'Let them in again first with `counterstamp person enable`.'],
  not_a_person: (name) => [
    `${name} is a service account: it has keys, and neither passkeys nor sign-ins nor accounts of its own.`,
  ],
  name_taken: (name) => [
    `${name} is there already, and two spellings are one principal.`,
    'Change roles and groups with `counterstamp person set`.',
  ],
  owner_unknown: (name) => [
    `The tenant has no person of the name ${name} who could answer for it.`,
    'Add them first with `counterstamp person add`.',
  ],
  service_account_unknown: (name) => [
    `The tenant has no service account of the name ${name}.`,
    '`counterstamp key create --role requester` makes one.',
  ],
  service_account_never_decides: (name) => [
    `${name} is a service account, and none is ever an approver or operator.`,
    'Use the name of a person.',
  ],
  identity_taken: (name) => [`This identity is ${name}’s already, and it opens one door.`],
  key_unknown: (key_id) => [`There is no key ${key_id}.`, '`counterstamp key list` shows the keys of a tenant.'],
  passkey_not_found: (credential_id) => [
    `There is no passkey ${credential_id}.`,
    '`counterstamp passkey list` shows the passkeys of a tenant.',
  ],
  passkey_last: (name) => [
    `It is the only passkey of ${name}: without it, they get in again only by a new invitation.`,
    'Repeat with --last to revoke it all the same, then run `counterstamp person invite`.',
  ],
};

/** The outcome of a change, or the refusal as a failure that a person can read. @throws {CliFailure} */
export function doneOrFail<T>(change: OwnerChange<T>): T {
  if (change.kind === 'done') return change;
  const [sentence, next] = SAID[change.code](change.subject);
  throw new CliFailure(sentence, next);
}
