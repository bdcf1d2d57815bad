import { describe, expect, test } from 'vitest';
import {
  carriesCsrfToken,
  cookieName,
  csrfTokenOf,
  endedCookie,
  isFromOrigin,
  sessionCookie,
  sessionSecretOf,
} from './session-cookie.ts';

const HTTPS = 'https://approve.example.com';
const HOME = 'http://localhost:8080';
const SECRET = 'A'.repeat(43);

const request = (headers: Record<string, string>) => new Request(`${HTTPS}/v1/session`, { headers });

test('over https the cookie is bound to the host and secure; at home it is neither, and everywhere out of reach of scripts', () => {
  expect(sessionCookie(HTTPS, SECRET, 60_000)).toBe(
    `__Host-cs_session=${SECRET}; Max-Age=60; Path=/; HttpOnly; Secure; SameSite=Strict`,
  );
  expect(sessionCookie(HOME, SECRET, 60_000)).toBe(
    `cs_session=${SECRET}; Max-Age=60; Path=/; HttpOnly; SameSite=Strict`,
  );
  expect(endedCookie(HTTPS)).toBe('__Host-cs_session=; Max-Age=0; Path=/; HttpOnly; Secure; SameSite=Strict');
});

test.each([
  ['no cookie', undefined, undefined],
  ['cookies of others', 'a=b; cs_session=c', undefined],
  ['ours', `a=b; __Host-cs_session=${SECRET}`, SECRET],
  ['an empty one', '__Host-cs_session=', null],
  ['one that is too long', `__Host-cs_session=${SECRET}A`, null],
  ['one that is percent-encoded', `__Host-cs_session=${'%41'.repeat(43)}`, SECRET],
])('of %s the secret is read where it has its form', (_, cookie, secret) => {
  expect(sessionSecretOf(request(cookie === undefined ? {} : { cookie }), HTTPS)).toBe(secret);
});

test('the token is another for each secret and does not hold it', () => {
  const tokens = [SECRET, 'B'.repeat(43)].map(csrfTokenOf);
  expect(new Set(tokens).size).toBe(2);
  expect(tokens[0]).not.toContain(SECRET);
});

test.each([
  ['its own', csrfTokenOf(SECRET), true],
  ["another session's", csrfTokenOf('B'.repeat(43)), false],
  ['a shorter one', csrfTokenOf(SECRET).slice(1), false],
  ['the secret itself', SECRET, false],
  ['an empty one', '', false],
])('with %s as its token a request is judged %s', (_, token, carries) => {
  expect(carriesCsrfToken(request({ 'x-csrf-token': token }), SECRET)).toBe(carries);
});

describe('the origin of a request', () => {
  test.each([
    [{ origin: HTTPS }, true],
    [{ origin: `${HTTPS}:8443` }, false],
    [{ origin: 'http://approve.example.com' }, false],
    [{ origin: 'null' }, false],
    [{ origin: 'https://approve.example.com.evil.test', 'sec-fetch-site': 'same-origin' }, false],
    [{ 'sec-fetch-site': 'same-origin' }, true],
    [{ 'sec-fetch-site': 'same-site' }, false],
    [{ 'sec-fetch-site': 'cross-site' }, false],
    [{ 'sec-fetch-site': 'none' }, false],
    [{ referer: HTTPS }, false],
    [{}, false],
  ])('%j is judged %s', (headers, ours) => {
    expect(isFromOrigin(request(headers), HTTPS)).toBe(ours);
  });
});

test('the name tells apart what only this host may set', () => {
  expect([cookieName(HTTPS), cookieName(HOME)]).toEqual(['__Host-cs_session', 'cs_session']);
});
