import { parseStrictJson, parseWith } from '@counterstamp/manifest-core';
import type { BookedEffect } from '@counterstamp/reconciler';
import { z } from 'zod';
import { CliFailure, EXIT } from '../failure.ts';
import { readInput } from '../read-input.ts';

const Effects = z.array(
  z.strictObject({
    provider: z.string().min(1),
    ref: z.string().min(1),
    run_id: z.string().nullable(),
    fields: z.record(z.string(), z.union([z.string(), z.number()])).default({}),
  }),
);

/** The effects that a person exported from an external system. @throws {CliFailure} naming the first place that is not as it must be. */
export async function readEffects(file: string): Promise<BookedEffect[]> {
  const text = Buffer.from(await readInput(file, '--effects', 'the effects')).toString('utf8');
  const json = parseStrictJson(text);
  const effects = json.ok ? parseWith(Effects, json.value) : json;
  if (effects.ok) return effects.value;
  const { code, path, detail } = effects.refusal;
  throw wrong(file, `${code}${path === '' ? '' : ` at ${path}`}${detail === undefined ? '' : `: ${detail}`}`);
}

function wrong(file: string, why: string): CliFailure {
  return new CliFailure(
    `${file} holds no list of effects: ${why}.`,
    'Write [{"provider": "sandbox-payments", "ref": "re_1", "run_id": "run_…", "fields": {"destination": "pay_1", "amount_minor": 4200}}].',
    EXIT.usage,
  );
}
