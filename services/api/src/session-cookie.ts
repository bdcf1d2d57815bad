import { createHmac, timingSafeEqual } from 'node:crypto';
import { generateCookie } from 'hono/cookie';
import { parse } from 'hono/utils/cookie';

/** A session's secret: 32 bytes as base64url. What has another form never reaches the database. */
const SECRET = /^[A-Za-z0-9_-]{43}$/;

const CSRF_HEADER = 'x-csrf-token';
const CSRF_DOMAIN = 'cs.csrf.v1';

/** The prefix `__Host-` makes the browser refuse a cookie of that name from a neighbouring host; it exists only over https. */
export function cookieName(origin: string): string {
  return isHttps(origin) ? '__Host-cs_session' : 'cs_session';
}

export function isHttps(origin: string): boolean {
  return new URL(origin).protocol === 'https:';
}

/** The secret that a request's cookie carries: `undefined` without a cookie of ours, `null` when it cannot be a secret. */
export function sessionSecretOf(request: Request, origin: string): string | null | undefined {
  const name = cookieName(origin);
  const value = parse(request.headers.get('cookie') ?? '', name)[name];
  if (value === undefined) return undefined;
  return SECRET.test(value) ? value : null;
}

/** The `Set-Cookie` that opens a session in the browser. */
export function sessionCookie(origin: string, secret: string, lifeMs: number): string {
  return cookie(origin, secret, Math.floor(lifeMs / 1_000));
}

/** The `Set-Cookie` that makes the browser forget the session. */
export function endedCookie(origin: string): string {
  return cookie(origin, '', 0);
}

function cookie(origin: string, value: string, maxAge: number): string {
  return generateCookie(cookieName(origin), value, {
    httpOnly: true,
    sameSite: 'Strict',
    path: '/',
    secure: isHttps(origin),
    maxAge,
  });
}

/** The token that a page of ours repeats with every change. It is derived, so that nothing more is stored, and does not show the secret. */
export function csrfTokenOf(secret: string): string {
  return createHmac('sha256', secret).update(CSRF_DOMAIN).digest('base64url');
}

/** Whether a browser says that the request comes from our own pages. Browsers set both headers themselves; a page cannot. */
export function isFromOrigin(request: Request, origin: string): boolean {
  const from = request.headers.get('origin');
  return from === null ? request.headers.get('sec-fetch-site') === 'same-origin' : from === origin;
}

/** Whether the request carries the session's own token. */
export function carriesCsrfToken(request: Request, secret: string): boolean {
  const given = Buffer.from(request.headers.get(CSRF_HEADER) ?? '');
  const expected = Buffer.from(csrfTokenOf(secret));
  return given.byteLength === expected.byteLength && timingSafeEqual(given, expected);
}
