import { ROUTES } from '@counterstamp/api-contract';
import { hashSecret } from '@counterstamp/manifest-store';
import type { ApiDeps } from './deps.ts';
import {
  endedFlowCookie,
  FLOW_LIFE_MS,
  flowCookie,
  flowKeyOf,
  newFlow,
  openFlow,
  sealedFlowOf,
  sealFlow,
} from './oidc-flow.ts';
import { createIdentityProvider, type IdentityProvider, type OidcSettings } from './oidc-provider.ts';
import { problemResponse, refused } from './problem.ts';
import { prepareSession } from './sessions.ts';
import type { SignIn } from './sign-in.ts';

/** Sign-in through an identity provider, for an installation that has one. */
export interface Oidc {
  provider: IdentityProvider;
  /** Seals what a browser keeps while its person is at the provider. */
  flow_key: Buffer;
  /** Wall time in milliseconds since the epoch. */
  wallMs(): number;
}

/** @param origin where people's browsers are. */
export function createOidc(settings: OidcSettings, origin: string, wallMs: Oidc['wallMs']): Oidc {
  const provider = createIdentityProvider(settings, `${origin}${ROUTES.oidcCallback.path}`);
  return { provider, flow_key: flowKeyOf(settings.client_secret), wallMs };
}

/** What the two routes need of the api. */
export interface OidcCall {
  deps: Pick<ApiDeps, 'identities' | 'ids' | 'log'>;
  signIn: Pick<SignIn, 'origin' | 'random'>;
  oidc: Oidc;
  request: Request;
}

/** Sends the browser to the identity provider. Nothing is written: what must be remembered, the browser keeps, sealed. */
export async function oidcLogin({ deps, signIn, oidc }: OidcCall): Promise<Response> {
  const flow = newFlow(signIn, oidc.wallMs());
  const to = await oidc.provider.authorizationUrl(flow);
  if (to.kind === 'unavailable') {
    deps.log.warn({ reason: to.reason }, 'the identity provider does not answer');
    return problemResponse(refused('identity_provider_unavailable'));
  }
  const cookie = flowCookie(signIn.origin, sealFlow(oidc.flow_key, flow, signIn));
  return new Response(null, { status: 303, headers: { location: to.url.href, 'set-cookie': cookie } });
}

/**
 * Takes the provider's answer and signs in whom it is about. A GET, since the provider's redirect is one; it changes something only for the
 * browser that began the flow, and once.
 */
export async function oidcCallback({ deps, signIn, oidc, request }: OidcCall): Promise<Response> {
  // Hono answers HEAD by the handler of GET; whoever only looks must not use the answer up.
  if (request.method !== 'GET') return problemResponse(refused('method_not_allowed', '', { allow: 'GET' }));
  const { search, searchParams } = new URL(request.url);
  const sealed = sealedFlowOf(request, signIn.origin);
  const flow = sealed === undefined ? undefined : openFlow(oidc.flow_key, sealed, oidc.wallMs());
  // Before the provider is asked: what nobody here began is not worth a question.
  if (flow === undefined || searchParams.get('state') !== flow.state) return refusal('identity_refused');

  const answer = await oidc.provider.identityOf(flow, search);
  if (answer.kind === 'unavailable') {
    deps.log.warn({ reason: answer.reason }, 'the identity provider does not answer');
    return problemResponse(refused('identity_provider_unavailable'));
  }
  if (answer.kind === 'refused') {
    deps.log.info({ reason: answer.reason }, 'the answer of the identity provider does not hold');
    return refusal('identity_refused');
  }

  const person = await deps.identities.vouchedPerson(answer, { digest: hashSecret(flow.state), life_ms: FLOW_LIFE_MS });
  if (person.kind !== 'known') {
    return refusal(person.kind === 'flow_used' ? 'identity_refused' : 'identity_unknown');
  }
  const session = prepareSession(signIn, deps.ids);
  await deps.identities.openSession(person, { method: 'oidc' }, session.opened);
  const headers = new Headers({ 'content-type': 'text/html; charset=utf-8' });
  headers.append('set-cookie', session.cookie);
  headers.append('set-cookie', endedFlowCookie(signIn.origin));
  return new Response(SIGNED_IN, { status: 200, headers });

  /** Nothing comes of this flow any more, so the browser may forget it. */
  function refusal(code: 'identity_refused' | 'identity_unknown'): Response {
    const response = problemResponse(refused(code));
    response.headers.append('set-cookie', endedFlowCookie(signIn.origin));
    return response;
  }
}

/**
 * A page rather than a redirect: in a chain of redirects that another site began, no browser sends a SameSite=Strict cookie. From this page
 * the next request is our own.
 */
const SIGNED_IN = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>Signed in</title></head>
<body><p>You are signed in. <a href="/">Continue</a></p></body>
</html>
`;
