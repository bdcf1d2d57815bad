import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Provider } from 'oidc-provider';
import type { OidcSettings } from '../src/oidc-provider.ts';

/** A real identity provider on 127.0.0.1, whose login page is the person who is set here. */
export interface RunningProvider {
  settings: OidcSettings;
  /** Who signs in next: the subject of its tokens; `null`: they give up. */
  person: string | null;
  /** Requests to the token endpoint so far. */
  tokenRequests(): number;
  /** Publishes another signing key than the one that signs, as after a theft of the name. */
  forgeKeys(): void;
  /** Follows the redirects from `url`, as a browser with no memory of the provider, to an address that is not its own. */
  signIn(url: string): Promise<URL>;
  stop(): Promise<void>;
}

/** @param redirectUri the callback that is registered. */
export async function startIdentityProvider(redirectUri: string): Promise<RunningProvider> {
  let handle: ReturnType<Provider['callback']> | undefined;
  let finish: Provider['interactionFinished'] | undefined;
  let tokenRequests = 0;
  let forged: object | undefined;
  const running: Pick<RunningProvider, 'person'> = { person: null };
  const server = createServer((request, response) => {
    if (request.url === '/token') tokenRequests += 1;
    if (forged !== undefined && request.url === '/jwks') {
      response.setHeader('content-type', 'application/json').end(JSON.stringify(forged));
    } else if (request.url?.startsWith('/interaction/') === true) {
      const result =
        running.person === null
          ? { error: 'access_denied' }
          : { login: { accountId: running.person, remember: false } };
      void finish?.(request, response, result);
    } else void handle?.(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const settings = { issuer, client_id: 'counterstamp', client_secret: randomBytes(24).toString('base64url') };

  const jwk = (kid: string) => ({
    ...generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' }),
    ...{ kid, alg: 'RS256', use: 'sig' },
  });
  const provider: Provider = new Provider(issuer, {
    clients: [
      {
        client_id: settings.client_id,
        client_secret: settings.client_secret,
        redirect_uris: [redirectUri],
        response_types: ['code'],
        grant_types: ['authorization_code'],
      },
    ],
    jwks: { keys: [jwk('one')] },
    cookies: { keys: [randomBytes(16).toString('hex')] },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_: unknown, interaction: { uid: string }) => `/interaction/${interaction.uid}` },
    findAccount: (_: unknown, sub: string) => ({ accountId: sub, claims: () => ({ sub }) }),
    // Whoever signs in has consented: what the installation asks for is their subject alone.
    async loadExistingGrant({ oidc }: { oidc: { session: { accountId: string } } }) {
      const grant = new provider.Grant({ clientId: settings.client_id, accountId: oidc.session.accountId });
      grant.addOIDCScope('openid');
      await grant.save();
      return grant;
    },
  });
  handle = provider.callback();
  finish = (request, response, result) => provider.interactionFinished(request, response, result);

  return Object.assign(running, {
    settings,
    tokenRequests: () => tokenRequests,
    forgeKeys() {
      const { kty, n, e, kid, alg, use } = jwk('one');
      forged = { keys: [{ kty, n, e, kid, alg, use }] };
    },
    async signIn(from: string) {
      const cookies = new Map<string, string>();
      let url = new URL(from);
      // The login and the ways to and from it take four redirects.
      for (let hops = 0; hops < 8 && url.origin === issuer; hops += 1) {
        const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
        const response = await fetch(url, { redirect: 'manual', headers: { cookie } });
        for (const set of response.headers.getSetCookie()) {
          const [, name, value] = /^([^=]+)=([^;]*)/.exec(set) ?? [];
          if (name !== undefined) cookies.set(name, value ?? '');
        }
        const location = response.headers.get('location');
        if (location === null) throw new Error(`the provider stopped at ${url.pathname}: ${await response.text()}`);
        url = new URL(location, url);
      }
      return url;
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  });
}
