import type { SessionView } from '@counterstamp/api-contract';
import type { Ids } from '@counterstamp/manifest-core';
import { hashSecret, type NewSession, type Session } from '@counterstamp/manifest-store';
import type { SessionCaller } from './caller.ts';
import { type Answer, answered } from './command.ts';
import type { ApiDeps } from './deps.ts';
import { refused } from './problem.ts';
import { csrfTokenOf, sessionCookie } from './session-cookie.ts';
import { randomText, type SignIn } from './sign-in.ts';

/** Longest life of a session, in milliseconds: a working day, after which everybody signs in anew. */
export const SESSION_LIFE_MS = 12 * 3_600_000;

/** How long a session may go unused, in milliseconds: an hour away from the desk ends it. */
export const SESSION_IDLE_MS = 60 * 60_000;

/** How long a proof of identity counts as fresh, in milliseconds: long enough for a few decisions in a row, short enough for an unlocked desk. */
export const STEP_UP_MS = 10 * 60_000;

/** A session that is about to be opened, and what the browser gets of it. */
export interface PreparedSession {
  /** What the database is given: never the secret itself. */
  opened: NewSession;
  /** Value of `Set-Cookie`. */
  cookie: string;
  csrf_token: string;
}

/** Makes the secret of a new session; `IdentityStore.openSession` opens it. */
export function prepareSession(signIn: Pick<SignIn, 'origin' | 'random'>, ids: Pick<Ids, 'id'>): PreparedSession {
  const secret = randomText(signIn);
  return {
    opened: { session_id: ids.id('session'), secret_hash: hashSecret(secret), life_ms: SESSION_LIFE_MS },
    cookie: sessionCookie(signIn.origin, secret, SESSION_LIFE_MS),
    csrf_token: csrfTokenOf(secret),
  };
}

/** Whether the person proved lately enough who they are. */
export function isFresh({ authenticated_age_ms }: Pick<Session, 'authenticated_age_ms'>): boolean {
  return authenticated_age_ms < STEP_UP_MS;
}

/** A session as its person sees it. */
export function sessionView(session: Session, csrf_token: SessionCaller['csrf_token']): SessionView {
  const { principal_id, tenant_id, name, roles, groups, method, authenticated_at, expires_at } = session;
  const fresh_until = new Date(Date.parse(authenticated_at) + STEP_UP_MS).toISOString();
  return {
    ...{ principal_id, tenant_id, name, roles, groups, method },
    ...{ authenticated_at, fresh_until, expires_at, csrf_token },
  };
}

/** The answer to whoever just signed in: the session as the database has it, and its cookie. */
export async function openedSession(
  { identities }: Pick<ApiDeps, 'identities'>,
  { opened, cookie, csrf_token }: PreparedSession,
): Promise<Answer<SessionView>> {
  const session = await identities.sessionOf(opened.secret_hash, SESSION_IDLE_MS);
  // Disabled in this very moment.
  if (session === undefined) return refused('unauthenticated');
  return answered(sessionView(session, csrf_token), 201, { 'set-cookie': cookie });
}
