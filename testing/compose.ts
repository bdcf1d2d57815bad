import { readFileSync } from 'node:fs';
import { parse } from 'yaml';

/** The members of a compose service that we use. */
export interface ComposeService {
  image: string;
  command?: string[];
  entrypoint?: string[];
  environment?: Record<string, string>;
  secrets?: string[];
  ports?: string[];
  volumes?: string[];
  networks?: string[];
  restart?: string;
  healthcheck?: { test?: string[]; disable?: boolean };
  depends_on?: Record<string, { condition: string }>;
  stop_grace_period?: string;
  container_name?: string;
  privileged?: boolean;
  read_only?: boolean;
  cap_drop?: string[];
  security_opt?: string[];
}

export interface ComposeFile {
  services: Record<string, ComposeService>;
  networks: Record<string, { internal?: boolean } | null>;
  secrets: Record<string, { file: string }>;
}

/** A compose file with its anchors merged and its variables replaced as `docker compose` does; only `${NAME}` and `${NAME:-default}` are used. */
export function readCompose(path: string, env: Readonly<Record<string, string>> = {}): ComposeFile {
  const text = readFileSync(path, 'utf8').replaceAll(
    /\$\{([A-Z_]+)(?::-([^}]*))?\}/g,
    (_, name: string, otherwise?: string) => env[name] || (otherwise ?? ''),
  );
  // Written by us; the schema check covers its shape.
  return parse(text, { merge: true }) as ComposeFile;
}
