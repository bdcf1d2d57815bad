import { DURATION_MEANINGS, type Durations, PROFILES, type Service } from '@counterstamp/manifest-core';
import type { z } from 'zod';
import { CONCURRENCY_DEFAULT, Common, concurrencyVariables, durationVariable } from './config.ts';

/** One variable of an environment, as the reference describes it. */
export interface VariableDoc {
  name: string;
  meaning: string;
  required: boolean;
  /** As it would be written; null: none. */
  default: string | null;
}

/** What a service takes beside the common variables, and its own defaults of those. */
export interface ServiceEnvironment {
  service: Service;
  schema: z.ZodObject;
  defaults: { readonly http_port: number; readonly concurrency?: number };
}

/**
 * Every variable of one service in the words of the schemas that parse them.
 * @throws {Error} naming a variable that says nothing about itself.
 */
export function describeEnvironment({ service, schema, defaults }: ServiceEnvironment): {
  common: VariableDoc[];
  own: VariableDoc[];
} {
  const login = `COUNTERSTAMP_${service.toUpperCase()}_DATABASE_URL`;
  const common = described(Common).map((variable) => ({ ...variable, ...ownDefault(variable.name) }));
  const own = [...described(schema), ...described(concurrencyVariables(service))];
  return {
    common,
    own: [
      {
        name: login,
        meaning: 'the service’s own login; absent: derived from DATABASE_URL and COUNTERSTAMP_SECRET',
        required: false,
        default: null,
      },
      ...own,
    ],
  };

  function ownDefault(name: string): Partial<VariableDoc> {
    if (name === 'COUNTERSTAMP_HTTP_PORT') return { default: String(defaults.http_port) };
    if (name === 'COUNTERSTAMP_CONCURRENCY') return { default: String(defaults.concurrency ?? CONCURRENCY_DEFAULT) };
    return {};
  }
}

/** Every duration with its variable and its value in each profile, in milliseconds. */
export function describeDurations(): {
  name: keyof Durations;
  variable: string;
  meaning: string;
  ms: Durations[keyof Durations][];
}[] {
  return (Object.keys(DURATION_MEANINGS) as (keyof Durations)[]).map((name) => ({
    name,
    variable: durationVariable(name),
    meaning: DURATION_MEANINGS[name],
    ms: Object.values(PROFILES).map((durations) => durations[name]),
  }));
}

function described(schema: z.ZodObject): VariableDoc[] {
  return (Object.entries(schema.shape) as [string, z.ZodType][]).map(([name, field]) => {
    const meaning = field.description;
    if (meaning === undefined) throw new Error(`${name} does not say what it means: add .describe(…) to its schema`);
    const absent = field.safeParse(undefined);
    return { name, meaning, required: !absent.success, default: absent.success ? written(absent.data) : null };
  });
}

/** A default as the environment would carry it. */
function written(value: unknown): string | null {
  switch (typeof value) {
    case 'boolean':
      return value ? '1' : '0';
    case 'number':
      return String(value);
    case 'string':
      return value === '' ? null : value;
    default:
      return null;
  }
}
