import { type Answer, problemAnswer } from '../http/answer.ts';

/** The provider's key that may do everything. No secret: the sandbox holds no money. */
export const WRITE_KEY = 'sk_sandbox';

/** The provider's key that may only read. */
export const READ_ONLY_KEY = 'rk_sandbox';

/** Null when `authorization` (the header's value) allows the access, else the refusal. */
export function refuseAccess(authorization: string | undefined, access: 'read' | 'write'): Answer | null {
  const key = /^Bearer (\S+)$/i.exec(authorization ?? '')?.[1];
  if (key === WRITE_KEY || (key === READ_ONLY_KEY && access === 'read')) return null;
  if (key === READ_ONLY_KEY) return problemAnswer(403, 'permission_denied', 'This key may only read.');
  return problemAnswer(401, 'unauthorized', 'Send Authorization: Bearer with a key of this provider.');
}
