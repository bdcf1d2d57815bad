import type { Digest, JsonObject } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';
import type { PrincipalRef, PrincipalRole } from './principal.ts';

/** A signed-in person as they are now. Instants are ISO, UTC, by the database's clock. */
export interface Session extends PrincipalRef {
  session_id: string;
  /** The person's name in the tenant. */
  name: string;
  roles: PrincipalRole[];
  groups: string[];
  method: SessionMethod;
  /** When the person last proved who they are. */
  authenticated_at: string;
  /** Milliseconds since then, at this read. */
  authenticated_age_ms: number;
  /** When the session ends at the latest. */
  expires_at: string;
  /** The database's clock at this read. */
  as_of: string;
}
export type SessionMethod = 'passkey' | 'oidc';

/** A session to open: the cookie's secret stays with the caller. */
export interface NewSession {
  session_id: string;
  secret_hash: Digest;
  life_ms: number;
}

/** What a challenge is bound to; compared as a whole when it is used up. */
export type ChallengePurpose = 'enrol' | 'sign_in' | 'step_up' | 'decide';

export interface NewPasskey {
  credential_id: string;
  /** COSE, base64url. */
  public_key: string;
  transports: string[];
  name: string;
  backed_up: boolean;
  /** DSSE envelope of the credential record. */
  certificate: JsonObject;
}

export interface PasskeySummary extends Pick<NewPasskey, 'credential_id' | 'name' | 'transports' | 'backed_up'> {
  created_at: string;
  last_used_at: string | null;
  revoked_at: string | null;
}

export type EnrolResult = 'enrolled' | 'invitation_invalid' | 'challenge_invalid' | 'passkey_known';
export type RevokePasskeyResult = 'revoked' | 'passkey_not_found' | 'passkey_last';

/** Who somebody is at an identity provider: `iss` and `sub` of its tokens, as they are. */
export interface ProviderIdentity {
  issuer: string;
  subject: string;
}
/** `identity_unknown` also for a person who may not act. */
export type VouchedPerson = ({ kind: 'known' } & PrincipalRef) | { kind: 'identity_unknown' | 'flow_used' };

/**
 * Who people are: invitations, passkeys, challenges, sessions. Secrets come as hashes and signatures are checked by the caller; that a
 * challenge is used once is decided here, in the transaction that it is used for. Calls in a person's name throw `NotPermitted` when the
 * tenant has no such person, or one that is disabled.
 */
export interface IdentityStore {
  /**
   * Records what an authenticator is asked to sign.
   * @param who null for a sign-in: nobody is known yet.
   * @param asked `challenge` in base64url; `subject` what it is bound to.
   * @returns when it expires.
   */
  beginChallenge(
    who: PrincipalRef | null,
    asked: { purpose: ChallengePurpose; challenge: string; subject: JsonObject; life_ms: number },
  ): Promise<string>;
  /** Whom an unused invitation is for. Changes nothing. */
  invitationFor(
    token_hash: Digest,
  ): Promise<(PrincipalRef & { invitation_id: string; name: string; as_of: string }) | undefined>;
  /** Records a passkey by an invitation, which is used up and opens a session, or by a session of the person. */
  enrolPasskey(
    who: PrincipalRef,
    by: { token_hash: Digest; opened: NewSession } | { session_id: string },
    challenge: string,
    passkey: NewPasskey,
  ): Promise<EnrolResult>;
  /** Whose living passkey this is; `undefined` also when its person may not act. */
  passkeyFor(credential_id: string): Promise<(PrincipalRef & { certificate: unknown; as_of: string }) | undefined>;
  /**
   * Whom an identity provider's answer is about. The flow is used up by the first answer to it, whomever that names.
   * @param flow digest of what this flow alone has, and its longest life in milliseconds.
   */
  vouchedPerson(identity: ProviderIdentity, flow: { digest: Digest; life_ms: number }): Promise<VouchedPerson>;
  /** @param by the passkey with the challenge that it signed; or the identity provider, whose word the caller checked. */
  openSession(
    who: PrincipalRef,
    by: { method: 'passkey'; credential_id: string; challenge: string } | { method: 'oidc' },
    opened: NewSession,
  ): Promise<boolean>;
  /** @param idleMs how long a session may go unused. */
  sessionOf(secret_hash: Digest, idleMs: number): Promise<Session | undefined>;
  /** Whether the session counts as freshly authenticated now: challenge and passkey hold. */
  stepUp(who: PrincipalRef, session_id: string, by: { credential_id: string; challenge: string }): Promise<boolean>;
  closeSession(who: PrincipalRef, session_id: string): Promise<void>;
  /** The person's own, oldest first, revoked ones too. */
  listPasskeys(who: PrincipalRef): Promise<PasskeySummary[]>;
  /** Ends every other session of the person as well. The last living passkey stays. */
  revokePasskey(who: PrincipalRef, session_id: string, credential_id: string): Promise<RevokePasskeyResult>;
}

export function createIdentityStore(sql: Sql): IdentityStore {
  return {
    async beginChallenge(who, { purpose, challenge, subject, life_ms }) {
      const [row] = await answered(sql<{ expires_at: string }[]>`
        select cs.begin_challenge(${who?.tenant_id ?? null}, ${who?.principal_id ?? null}, ${purpose}, ${challenge}, ${JSON.stringify(subject)}::text::jsonb,
          ${life_ms}) as expires_at`);
      return one(row).expires_at;
    },

    async invitationFor(token_hash) {
      const [row] = await answered(
        sql<(PrincipalRef & { invitation_id: string; name: string; as_of: string })[]>`
          select * from cs.invitation_for(${token_hash})`,
      );
      return row;
    },

    async enrolPasskey({ tenant_id, principal_id }, by, challenge, passkey) {
      const byInvitation = 'token_hash' in by;
      const [row] = await answered(sql<{ result: EnrolResult }[]>`
        select cs.enrol_passkey(${tenant_id}, ${principal_id}, ${byInvitation ? by.token_hash : null}, ${byInvitation ? null : by.session_id},
          ${challenge}, ${JSON.stringify(passkey)}::text::jsonb, ${byInvitation ? JSON.stringify(by.opened) : null}::text::jsonb) as result`);
      return one(row).result;
    },

    async passkeyFor(credential_id) {
      const [row] = await answered(
        sql<(PrincipalRef & { certificate: unknown; as_of: string })[]>`
          select * from cs.passkey_for(${credential_id})`,
      );
      return row;
    },

    async vouchedPerson({ issuer, subject }, { digest, life_ms }) {
      const [row] = await answered(sql<{ result: VouchedPerson['kind']; tenant_id: string; principal_id: string }[]>`
        select result, tenant_id, principal_id from cs.vouched_person(${issuer}, ${subject}, ${digest}, ${life_ms})`);
      const { result, tenant_id, principal_id } = one(row);
      return result === 'known' ? { kind: result, tenant_id, principal_id } : { kind: result };
    },

    async openSession({ tenant_id, principal_id }, by, { session_id, secret_hash, life_ms }) {
      const passkey = by.method === 'passkey' ? by : { credential_id: null, challenge: null };
      const [row] = await answered(sql<{ opened: boolean }[]>`
        select cs.open_session(${tenant_id}, ${principal_id}, ${by.method}, ${session_id}, ${secret_hash}, ${life_ms}, ${passkey.credential_id},
          ${passkey.challenge}) as opened`);
      return one(row).opened;
    },

    async sessionOf(secret_hash, idleMs) {
      const [row] = await answered(
        sql<Session[]>`
          select session_id, tenant_id, principal_id, name, to_jsonb(roles) as roles, to_jsonb(groups) as groups, method, authenticated_at,
            authenticated_age_ms, expires_at, as_of from cs.session_of(${secret_hash}, ${idleMs})`,
      );
      return row;
    },

    async stepUp({ tenant_id, principal_id }, session_id, { credential_id, challenge }) {
      const [row] = await answered(sql<{ stepped: boolean }[]>`
        select cs.step_up(${tenant_id}, ${principal_id}, ${session_id}, ${credential_id}, ${challenge}) as stepped`);
      return one(row).stepped;
    },

    async closeSession({ tenant_id, principal_id }, session_id) {
      await answered(sql`select cs.close_session(${tenant_id}, ${principal_id}, ${session_id})`);
    },

    async listPasskeys({ tenant_id, principal_id }) {
      return await answered(sql<PasskeySummary[]>`
        select credential_id, name, to_jsonb(transports) as transports, backed_up, created_at, last_used_at, revoked_at
          from cs.list_passkeys(${tenant_id}, ${principal_id})`);
    },

    async revokePasskey({ tenant_id, principal_id }, session_id, credential_id) {
      const [row] = await answered(sql<{ result: RevokePasskeyResult }[]>`
        select cs.revoke_passkey(${tenant_id}, ${principal_id}, ${session_id}, ${credential_id}) as result`);
      return one(row).result;
    },
  };
}

/** A function that returns a value always gives one row. */
function one<R>(row: R | undefined): R {
  if (row === undefined) throw new Error('a function of the database returned nothing');
  return row;
}
