import type { SigningKey, TrustedKeys } from '@counterstamp/signatures';

/** What an installation needs so that people can sign in and receipts are signed. */
export interface SignIn {
  /** Where people's browsers are, `https://host[:port]`; its host name is the passkeys' relying party. */
  origin: string;
  /** Certifies passkeys at enrolment and signs receipts; lives outside the database. */
  key: SigningKey;
  /** Whose certificates count: the key above, and those before it. Published as they are, with those for checkpoints. */
  keys: TrustedKeys;
  /** That many random bytes from the system, for secrets, challenges and nonces. */
  random(bytes: number): Uint8Array;
}

/** Host name that passkeys are bound to. */
export function rpIdOf({ origin }: Pick<SignIn, 'origin'>): string {
  return new URL(origin).hostname;
}

/** Bytes of a challenge, a nonce and a session's secret: 256 bits are not guessed. */
export const RANDOM_BYTES = 32;

/** Random text of 256 bits, base64url. */
export function randomText({ random }: Pick<SignIn, 'random'>): string {
  return Buffer.from(random(RANDOM_BYTES)).toString('base64url');
}
