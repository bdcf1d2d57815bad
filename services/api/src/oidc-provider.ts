import type { ProviderIdentity } from '@counterstamp/manifest-store';
import {
  AuthorizationResponseError,
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  ClientError,
  ClientSecretBasic,
  type Configuration,
  calculatePKCECodeChallenge,
  discovery,
  enableNonRepudiationChecks,
  ResponseBodyError,
} from 'openid-client';
import { FLOW_LIFE_MS, type OidcFlow } from './oidc-flow.ts';

/** Where and as what the installation is registered at its identity provider. */
export interface OidcSettings {
  /** As its tokens name it (`iss`). */
  issuer: string;
  client_id: string;
  client_secret: string;
}

/** The provider cannot be asked now. `reason` holds no secret. */
export interface ProviderUnavailable {
  kind: 'unavailable';
  reason: string;
}

/** The identity provider as the api uses it. */
export interface IdentityProvider {
  /** Where the browser is sent to sign in. */
  authorizationUrl(flow: OidcFlow): Promise<{ kind: 'url'; url: URL } | ProviderUnavailable>;
  /** Whom the provider says signed in, once its answer to this flow holds. @param search the query of our callback. */
  identityOf(
    flow: OidcFlow,
    search: string,
  ): Promise<({ kind: 'identity' } & ProviderIdentity) | { kind: 'refused'; reason: string } | ProviderUnavailable>;
}

/** Seconds for one answer of the provider: a person waits for it, and so does one of our connections. */
const ANSWER_MAX_S = 5;

/** Seconds since the person last proved to the provider who they are: within this flow, since the session counts it as a fresh proof. */
const MAX_AGE_S = FLOW_LIFE_MS / 1_000;

/** Codes of openid-client for an answer that came and does not hold. */
const DOES_NOT_HOLD =
  /^OAUTH_(?:INVALID_RESPONSE|JWT_CLAIM_COMPARISON_FAILED|JWT_TIMESTAMP_CHECK_FAILED|JSON_ATTRIBUTE_COMPARISON_FAILED|UNSUPPORTED_OPERATION)$/;

/** @param redirectUri our callback, as the provider has it registered. */
export function createIdentityProvider(settings: OidcSettings, redirectUri: string): IdentityProvider {
  let discovered: Promise<Configuration> | undefined;

  /** What the provider says of itself: asked when it is first needed, so that the api starts without it; kept, unless asking failed. */
  function configuration(): Promise<Configuration> {
    discovered ??= discover(settings).catch((error: unknown) => {
      discovered = undefined;
      throw error;
    });
    return discovered;
  }

  return {
    async authorizationUrl(flow) {
      try {
        const url = buildAuthorizationUrl(await configuration(), {
          redirect_uri: redirectUri,
          scope: 'openid',
          state: flow.state,
          nonce: flow.nonce,
          code_challenge: await calculatePKCECodeChallenge(flow.verifier),
          code_challenge_method: 'S256',
          // A session begins with a fresh proof of identity, which an old sign-in at the provider is not.
          prompt: 'login',
          max_age: String(MAX_AGE_S),
        });
        return { kind: 'url', url };
      } catch (error) {
        return { kind: 'unavailable', reason: reasonOf(error) };
      }
    },

    async identityOf(flow, search) {
      try {
        // From our own configuration: behind a proxy the request does not show the address that the provider knows.
        const tokens = await authorizationCodeGrant(await configuration(), new URL(`${redirectUri}${search}`), {
          expectedState: flow.state,
          expectedNonce: flow.nonce,
          pkceCodeVerifier: flow.verifier,
          idTokenExpected: true,
          maxAge: MAX_AGE_S,
        });
        const claims = tokens.claims();
        if (claims === undefined) return { kind: 'refused', reason: 'no ID token' };
        return { kind: 'identity', issuer: claims.iss, subject: claims.sub };
      } catch (error) {
        return { kind: isRefusal(error) ? 'refused' : 'unavailable', reason: reasonOf(error) };
      }
    },
  };
}

async function discover({ issuer, client_id, client_secret }: OidcSettings): Promise<Configuration> {
  const server = new URL(issuer);
  return await discovery(server, client_id, client_secret, ClientSecretBasic(client_secret), {
    timeout: ANSWER_MAX_S,
    // Signatures are checked though the token comes straight from the provider. Plain http is for one on the own machine (config.ts).
    execute: [enableNonRepudiationChecks, ...(server.protocol === 'http:' ? [allowInsecureRequests] : [])],
  });
}

/** Whether the provider answered, and the answer is no proof of who somebody is. Everything else may go better another time. */
function isRefusal(error: unknown): boolean {
  if (error instanceof AuthorizationResponseError) return true;
  if (error instanceof ResponseBodyError) return error.error === 'invalid_grant';
  return error instanceof ClientError && DOES_NOT_HOLD.test(error.code ?? '');
}

/** For the log. The library's causes hold whole answers, with tokens in them, so they stay out. */
function reasonOf(error: unknown): string {
  if (error instanceof ResponseBodyError || error instanceof AuthorizationResponseError) {
    return `${error.code}: ${error.error.slice(0, 100).toWellFormed()}`;
  }
  return error instanceof Error ? error.message : 'unknown';
}
