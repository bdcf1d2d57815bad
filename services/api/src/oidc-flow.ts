import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';
import { generateCookie } from 'hono/cookie';
import { parse } from 'hono/utils/cookie';
import { z } from 'zod';
import { isHttps } from './session-cookie.ts';
import { randomText, type SignIn } from './sign-in.ts';

/** One sign-in under way at the identity provider: what only its beginner's browser and we know, until the provider answers. */
const OidcFlow = z.strictObject({
  state: z.string(),
  nonce: z.string(),
  /** PKCE's code verifier. */
  verifier: z.string(),
  /** Milliseconds since the epoch. */
  expires_at_ms: z.number(),
});
export type OidcFlow = z.infer<typeof OidcFlow>;

/** How long a person may take at the provider, in milliseconds: a password, a second factor and a telephone call in between. */
export const FLOW_LIFE_MS = 10 * 60_000;

const DOMAIN = 'cs.oidc-flow.v1';
const CIPHER = 'aes-256-gcm';
const KEY_BYTES = 32;
const IV_BYTES = 12;
const TAG_BYTES = 16;

/**
 * The key that seals flows. Every process of the api has to open what another sealed, so it is derived from a secret that they share: the
 * client secret, which is this sign-in's own. The installation key signs, and a key that signs should do nothing else.
 */
export function flowKeyOf(clientSecret: string): Buffer {
  return Buffer.from(hkdfSync('sha256', clientSecret, '', DOMAIN, KEY_BYTES));
}

export function newFlow(signIn: Pick<SignIn, 'random'>, nowMs: number): OidcFlow {
  const fresh = () => randomText(signIn);
  return { state: fresh(), nonce: fresh(), verifier: fresh(), expires_at_ms: nowMs + FLOW_LIFE_MS };
}

export function sealFlow(key: Buffer, flow: OidcFlow, { random }: Pick<SignIn, 'random'>): string {
  const iv = random(IV_BYTES);
  const cipher = createCipheriv(CIPHER, key, iv, { authTagLength: TAG_BYTES }).setAAD(Buffer.from(DOMAIN));
  const sealed = Buffer.concat([cipher.update(JSON.stringify(flow), 'utf8'), cipher.final()]);
  return Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString('base64url');
}

/** The flow that was sealed; `undefined` when the text was not sealed with this key, or the flow is over. */
export function openFlow(key: Buffer, text: string, nowMs: number): OidcFlow | undefined {
  const bytes = Buffer.from(text, 'base64url');
  if (bytes.byteLength <= IV_BYTES + TAG_BYTES) return undefined;
  const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, IV_BYTES), { authTagLength: TAG_BYTES })
    .setAAD(Buffer.from(DOMAIN))
    .setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
  let plain: string;
  try {
    plain = Buffer.concat([decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)), decipher.final()]).toString('utf8');
  } catch {
    return undefined;
  }
  const flow = OidcFlow.parse(JSON.parse(plain));
  return nowMs < flow.expires_at_ms ? flow : undefined;
}

/** The sealed flow that a request carries. */
export function sealedFlowOf(request: Request, origin: string): string | undefined {
  const name = cookieName(origin);
  return parse(request.headers.get('cookie') ?? '', name)[name];
}

/** The `Set-Cookie` that keeps a flow in the browser. Lax, because the provider's redirect comes from another site. */
export function flowCookie(origin: string, sealed: string): string {
  return cookie(origin, sealed, FLOW_LIFE_MS / 1_000);
}

/** The `Set-Cookie` that makes the browser forget the flow. */
export function endedFlowCookie(origin: string): string {
  return cookie(origin, '', 0);
}

function cookie(origin: string, value: string, maxAge: number): string {
  return generateCookie(cookieName(origin), value, {
    httpOnly: true,
    sameSite: 'Lax',
    path: '/',
    secure: isHttps(origin),
    maxAge,
  });
}

/** By the prefix `__Host-`, which asks for the path /, no neighbouring host can put a sign-in of its own under way here. */
function cookieName(origin: string): string {
  return isHttps(origin) ? '__Host-cs_oidc' : 'cs_oidc';
}
