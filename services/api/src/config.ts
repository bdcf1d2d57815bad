import { parseSigningKey, parseTrustedKeys } from '@counterstamp/signatures';
import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
  variable,
} from '@counterstamp/stage-runtime';
import { contractFaults } from '@counterstamp/workflows';
import { z } from 'zod';
import type { OidcSettings } from './oidc-provider.ts';
import { DEFAULT_RATE_LIMITS, RATE_WINDOW_S } from './rate-limits.ts';
import type { SignIn } from './sign-in.ts';

const rate = (fallback: number, what: string) =>
  variable
    .wholeNumber(1_000_000, 1)
    .default(fallback)
    .describe(`requests in ${RATE_WINDOW_S} s that one process of the api takes ${what}`);

/** What this service takes from its environment beside the common variables. Each member says what it means. */
const Own = z.object({
  COUNTERSTAMP_RATE_PER_PRINCIPAL: rate(DEFAULT_RATE_LIMITS.per_principal, 'from one principal'),
  COUNTERSTAMP_RATE_PER_TENANT: rate(DEFAULT_RATE_LIMITS.per_tenant, 'from one tenant'),
  COUNTERSTAMP_RATE_UNAUTHENTICATED: rate(
    DEFAULT_RATE_LIMITS.unauthenticated,
    'from one address without a valid credential; behind a proxy that is everybody without one',
  ),
  COUNTERSTAMP_OPERATING_TENANT: z
    .string()
    .min(1)
    .optional()
    .describe(
      'the tenant whose operators may set and release holds and judge instances, which stop or concern everybody; absent: those of every tenant, which is right where there is one',
    ),
  COUNTERSTAMP_ORIGIN: variable.origin
    .optional()
    .describe(
      'origin of the console, such as https://approve.example.com: people sign in there, and passkeys belong to its host. Required outside development',
    ),
  COUNTERSTAMP_INSTALLATION_KEY: variable
    .parsed(parseSigningKey)
    .optional()
    .describe('private Ed25519 key (JWK) that certifies passkeys and signs receipts. Required outside development'),
  COUNTERSTAMP_TRUSTED_KEYS: variable
    .parsed(parseTrustedKeys)
    .optional()
    .describe(
      'JWK set of the installation’s public keys, each with its purposes; holds that of COUNTERSTAMP_INSTALLATION_KEY for credential and receipt. Required outside development',
    ),
  COUNTERSTAMP_OIDC_ISSUER: z
    .string()
    .refine(isIssuer, 'must be a URL without query and fragment, https:// or, on this machine, http://')
    .optional()
    .describe(
      'identity provider (OpenID Connect) through which linked people sign in, exactly as its tokens name it. It must support prompt=login and max_age, and have /v1/oidc/callback under COUNTERSTAMP_ORIGIN as the redirect address. Absent: passkeys alone',
    ),
  COUNTERSTAMP_OIDC_CLIENT_ID: z.string().min(1).optional().describe('what the provider calls this installation'),
  COUNTERSTAMP_OIDC_CLIENT_SECRET: z
    .string()
    .min(16, 'must have at least 16 characters')
    .optional()
    .describe('the secret for COUNTERSTAMP_OIDC_CLIENT_ID, sent by client_secret_basic'),
});

/** What the api has beside the common configuration; `signIn` is absent in development only, `oidc` where there is no provider. */
export type ApiConfig = ServiceConfig & {
  own: z.infer<typeof Own>;
  signIn?: Omit<SignIn, 'random'>;
  oidc?: OidcSettings;
};

export const environment = { service: 'api', schema: Own, defaults: { http_port: 8080 } } as const;

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<ApiConfig> {
  const result = parseServiceConfig(environment.service, env, environment.schema, environment.defaults);
  if (!result.ok) return result;
  const { config } = result;
  // How early a successor may follow a run with an attempt is the api's figure: it must hold for the contracts as well.
  const faults = contractFaults(config.durations);
  const signIn = parseSignIn(config.own, config.development, faults);
  const oidc = parseOidc(config.own, faults);
  return faults.length === 0
    ? {
        ok: true,
        config: {
          ...config,
          ...(signIn === undefined ? {} : { signIn }),
          ...(oidc === undefined ? {} : { oidc }),
        },
      }
    : { ok: false, faults };
}

/** OpenID Connect Core 1.0, section 2. Secrets go to it, so plain http is for a provider on the own machine. */
function isIssuer(text: string): boolean {
  if (!URL.canParse(text) || /[?#]/.test(text)) return false;
  const { protocol, hostname } = new URL(text);
  return protocol === 'https:' || (protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(hostname));
}

/** The identity provider: its three variables, all or none, and only where people can sign in at all. */
function parseOidc(own: z.infer<typeof Own>, faults: string[]): OidcSettings | undefined {
  const { COUNTERSTAMP_OIDC_ISSUER, COUNTERSTAMP_OIDC_CLIENT_ID, COUNTERSTAMP_OIDC_CLIENT_SECRET } = own;
  const given = { COUNTERSTAMP_OIDC_ISSUER, COUNTERSTAMP_OIDC_CLIENT_ID, COUNTERSTAMP_OIDC_CLIENT_SECRET };
  const missing = Object.entries(given).filter(([, value]) => value === undefined);
  if (missing.length === Object.keys(given).length) return undefined;
  faults.push(...missing.map(([name]) => `${name}: is required with the other COUNTERSTAMP_OIDC_ variables`));
  if (own.COUNTERSTAMP_ORIGIN === undefined) {
    faults.push(
      'COUNTERSTAMP_ORIGIN: is required with the COUNTERSTAMP_OIDC_ variables: the provider sends people there',
    );
  }
  const [issuer, client_id, client_secret] = Object.values(given);
  if (issuer === undefined || client_id === undefined || client_secret === undefined) return undefined;
  return { issuer, client_id, client_secret };
}

/** What people need to sign in, and receipts to be signed: origin, key and trusted keys, all or, in development, none. */
function parseSignIn(own: z.infer<typeof Own>, development: boolean, faults: string[]): ApiConfig['signIn'] {
  const { COUNTERSTAMP_ORIGIN: origin, COUNTERSTAMP_INSTALLATION_KEY: key, COUNTERSTAMP_TRUSTED_KEYS: keys } = own;
  const given = {
    COUNTERSTAMP_ORIGIN: origin,
    COUNTERSTAMP_INSTALLATION_KEY: key,
    COUNTERSTAMP_TRUSTED_KEYS: keys,
  };
  const missing = Object.entries(given).filter(([, value]) => value === undefined);
  if (development && missing.length === Object.keys(given).length) return undefined;
  faults.push(...missing.map(([name]) => `${name}: is required, or nobody could sign in`));
  if (origin === undefined || key === undefined || keys === undefined) return undefined;
  for (const [purpose, loss] of [
    ['credential', 'no passkey that it certifies would count'],
    ['receipt', 'no receipt that it signs would be believed'],
  ] as const) {
    if (keys.find(key.key_id, purpose) === undefined) {
      faults.push(
        `COUNTERSTAMP_TRUSTED_KEYS: must list the key of COUNTERSTAMP_INSTALLATION_KEY (${key.key_id}) with the purpose ${purpose}, or ${loss}`,
      );
    }
  }
  return { origin, key, keys };
}
