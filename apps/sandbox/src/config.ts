import { z } from 'zod';

/** 4010: none of the ports that Postgres, Redis, the API or the console take by default. */
const DEFAULT_PORT = 4010;

const Environment = z.object({
  SANDBOX_PORT: z
    .string()
    .regex(/^[0-9]{1,5}$/, 'must be a port number, 0 for a free one')
    .transform(Number)
    .pipe(z.int().max(65_535))
    .default(DEFAULT_PORT),
  SANDBOX_HOST: z.string().min(1).default('127.0.0.1'),
});

export interface SandboxConfig {
  readonly port: number;
  readonly host: string;
}

export type ConfigRead =
  | { readonly ok: true; readonly config: SandboxConfig }
  | { readonly ok: false; readonly problems: readonly string[] };

/** Parses the whole environment at once and names every problem. */
export function readConfig(environment: Readonly<Record<string, string | undefined>>): ConfigRead {
  const parsed = Environment.safeParse(environment);
  if (!parsed.success) {
    return { ok: false, problems: parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`) };
  }
  return { ok: true, config: { port: parsed.data.SANDBOX_PORT, host: parsed.data.SANDBOX_HOST } };
}
