import { InvalidArgumentError } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';

/**
 * Refuses names that could deceive who reads them, before anything is asked.
 * @param given option and text, in pairs.
 * @throws {CliFailure} for the first that is no identifier.
 */
export async function checkIdentifiers(...given: readonly (readonly [option: string, text: string])[]): Promise<void> {
  const { ExternalId } = await import('@counterstamp/manifest-core');
  for (const [option, text] of given) {
    if (!ExternalId.safeParse(text).success) {
      throw new CliFailure(
        `${option} "${text}" must start with an ASCII letter or digit and hold only letters, digits and . _ - : @ #.`,
        undefined,
        EXIT.usage,
      );
    }
  }
}

/** A comma-separated list without repetitions, for an option; the empty text is the empty list. */
export function list(text: string): string[] {
  const parts = text.split(',').map((part) => part.trim());
  return [...new Set(parts.filter((part) => part !== ''))];
}

/** A comma-separated list of known words, for an option. */
export function listOf<W extends string>(words: readonly W[]): (text: string) => W[] {
  const known = (part: string): part is W => (words as readonly string[]).includes(part);
  return (text) =>
    list(text).map((part) => {
      if (!known(part)) throw new InvalidArgumentError(`Each must be one of ${words.join(', ')}.`);
      return part;
    });
}

/** manifest-store's roles of a principal; spelled out so that help needs no database driver. Checked by type where they are used. */
export const PRINCIPAL_ROLES = ['requester', 'approver', 'operator', 'auditor', 'break_glass'] as const;
