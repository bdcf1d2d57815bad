import { CliFailure, EXIT } from '../failure.ts';

/** The process environment before it is parsed. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** What `up` itself needs of the environment; the services check the rest. */
export interface UpConfig {
  /** The owner's; absent: the embedded Postgres. */
  database_url: string | undefined;
  redis_url: string | undefined;
  /** Absent: kept in the state folder. */
  secret: string | undefined;
  role_prefix: string;
  queue_prefix: string | undefined;
  profile: string;
}

/** The profile of a fleet that nobody configured: its waits fit a demonstration. */
const PROFILE_DEFAULT = 'fast';

/** What role names begin with when nobody says otherwise; manifest-store's default. */
const ROLE_PREFIX_DEFAULT = 'cs_';

/**
 * Parses the environment of `up`.
 * @throws {CliFailure} with every problem at once and exit code 78.
 */
export function parseUpConfig(env: Environment): UpConfig {
  const faults: string[] = [];
  const read = (name: string, holds: (text: string) => boolean, sentence: string): string | undefined => {
    const text = env[name];
    if (text === undefined || text === '') return undefined;
    if (!holds(text)) faults.push(`${name} ${sentence}`);
    return text;
  };
  const isUrl = (...protocols: string[]) => {
    return (text: string) => URL.canParse(text) && protocols.includes(new URL(text).protocol);
  };
  const config: UpConfig = {
    database_url: read(
      'DATABASE_URL',
      isUrl('postgres:', 'postgresql:'),
      'must be a URL that starts with postgres:// or postgresql://',
    ),
    redis_url: read('REDIS_URL', isUrl('redis:', 'rediss:'), 'must be a URL that starts with redis:// or rediss://'),
    secret: read('COUNTERSTAMP_SECRET', (text) => text.length >= 16, 'must have at least 16 characters'),
    role_prefix:
      read(
        'COUNTERSTAMP_ROLE_PREFIX',
        (text) => /^[a-z][a-z0-9_]{0,30}$/.test(text),
        'must be lower-case letters, digits and _',
      ) ?? ROLE_PREFIX_DEFAULT,
    queue_prefix: read(
      'COUNTERSTAMP_QUEUE_PREFIX',
      (text) => /^[A-Za-z0-9_-]{1,64}$/.test(text),
      'must be letters, digits, _ and -',
    ),
    profile:
      read('COUNTERSTAMP_PROFILE', (text) => ['fast', 'production'].includes(text), 'must be fast or production') ??
      PROFILE_DEFAULT,
  };
  if (faults.length > 0) {
    throw new CliFailure(
      `The configuration is wrong:\n${faults.map((fault) => `  - ${fault}`).join('\n')}`,
      'Correct these variables and start again.',
      EXIT.configuration,
    );
  }
  return config;
}
