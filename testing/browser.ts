import type {
  DecideBody,
  DecidedRun,
  DecisionChallenge,
  Passkeys,
  Problem,
  SessionView,
} from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import { addPerson, invitePerson, type PrincipalRole, type Sql } from '@counterstamp/manifest-store';
import {
  createSoftwareAuthenticator,
  type SoftwareAuthenticator,
} from '@counterstamp/signatures/software-authenticator';
import { testIds } from './test-ids.ts';

/** Milliseconds for one answer; the api itself gives up on a silent database after 12 seconds. Beyond them it hangs, and a test says so. */
const REPLY_MS = 15_000;

/** Where the pages of test installations are; no request goes there. */
export const ORIGIN = 'https://approve.example.com';

type Misbehaviour = Parameters<SoftwareAuthenticator['authenticate']>[1];

type CreationOptionsJson = Parameters<SoftwareAuthenticator['register']>[0];
type RequestOptionsJson = Parameters<SoftwareAuthenticator['authenticate']>[0];

/** Whatever an answer may hold: a test reads the members that it expects and asserts on them. */
type AnyBody = Problem &
  SessionView &
  DecidedRun &
  Passkeys &
  Omit<DecisionChallenge, 'options'> & { options: CreationOptionsJson & RequestOptionsJson };

export interface BrowserReply {
  status: number;
  headers: Headers;
  body: AnyBody;
}

/** A person's browser with their passkey: keeps the cookie and the token, and says where it is. */
export interface Browser {
  authenticator: SoftwareAuthenticator;
  cookie: string | undefined;
  session: SessionView | undefined;
  /** `headers` replace the browser's own; an empty text leaves one out. */
  send(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<BrowserReply>;
  /** Uses an invitation up, as its page would; signed in afterwards. */
  enrol(invitation: string, misbehaviour?: Misbehaviour): Promise<BrowserReply>;
  signIn(misbehaviour?: Misbehaviour): Promise<BrowserReply>;
  stepUp(misbehaviour?: Misbehaviour): Promise<BrowserReply>;
  challenge(run_id: RunId, asked: Record<string, unknown>): Promise<BrowserReply>;
  /** What the passkey answers to a challenge. */
  sign(asked: BrowserReply['body'], misbehaviour?: Misbehaviour): Promise<NonNullable<DecideBody['assertion']>>;
  decide(run_id: RunId, body: Record<string, unknown>): Promise<BrowserReply>;
}

export function createBrowser(url: string, authenticator = createSoftwareAuthenticator({ origin: ORIGIN })): Browser {
  const browser: Browser = {
    authenticator,
    cookie: undefined,
    session: undefined,
    async send(method, path, body, headers = {}) {
      const all: Record<string, string> = {
        ...(method === 'GET' ? {} : { origin: ORIGIN }),
        ...(browser.cookie === undefined ? {} : { cookie: browser.cookie }),
        ...(browser.session === undefined || method === 'GET' ? {} : { 'x-csrf-token': browser.session.csrf_token }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      };
      const response = await fetch(`${url}${path}`, {
        method,
        signal: AbortSignal.timeout(REPLY_MS),
        headers: Object.fromEntries(Object.entries(all).filter(([, value]) => value !== '')),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      return {
        status: response.status,
        headers: response.headers,
        body: JSON.parse(text === '' ? 'null' : text) as AnyBody,
      };
    },
    async enrol(invitation, misbehaviour) {
      const asked = await browser.send('POST', '/v1/enrolment/options', { invitation });
      if (asked.status !== 200) return asked;
      const response = await authenticator.register(asked.body.options, misbehaviour);
      return keep(await browser.send('POST', '/v1/enrolment', { invitation, name: 'a key', response }));
    },
    async signIn(misbehaviour) {
      const asked = await browser.send('POST', '/v1/session/options', {});
      const response = await authenticator.authenticate(asked.body.options, misbehaviour);
      return keep(await browser.send('POST', '/v1/session', { response }));
    },
    async stepUp(misbehaviour) {
      const asked = await browser.send('POST', '/v1/session/step-up/options', {});
      const response = await authenticator.authenticate(asked.body.options, misbehaviour);
      return await browser.send('POST', '/v1/session/step-up', { response });
    },
    challenge: (run_id, asked) => browser.send('POST', `/v1/runs/${run_id}/decisions/challenge`, asked),
    async sign({ pre_image, options }, misbehaviour) {
      const response = await authenticator.authenticate(options, misbehaviour);
      return { pre_image, response };
    },
    decide: (run_id, body) => browser.send('POST', `/v1/runs/${run_id}/decisions`, body),
  };

  function keep(reply: BrowserReply): BrowserReply {
    if (reply.status !== 201) return reply;
    browser.cookie = reply.headers.get('set-cookie')?.split(';')[0];
    browser.session = reply.body;
    return reply;
  }
  return browser;
}

/** A person of the tenant and an invitation for them. */
export async function invited(
  owner: Sql,
  name: string,
  roles: readonly PrincipalRole[],
  more: { tenant?: string; groups?: readonly string[]; owner_of?: readonly string[] } = {},
): Promise<{ principal_id: string; token: string }> {
  const tenant_id = more.tenant ?? 'shop_north';
  const { groups = [], owner_of = [] } = more;
  const added = await addPerson(owner, testIds, { tenant_id, name, roles, groups, owner_of });
  if (added.kind === 'refused') throw new Error(`not added: ${added.code}`);
  const invitation = await invitePerson(owner, testIds, { tenant_id, name, expiresInMs: 3_600_000 });
  if (invitation.kind === 'refused') throw new Error(`not invited: ${invitation.code}`);
  return { principal_id: added.principal_id, token: invitation.token };
}

/** A person who enrolled and is signed in at this api. */
export async function signedIn(
  owner: Sql,
  url: string,
  name: string,
  roles: readonly PrincipalRole[],
  more?: Parameters<typeof invited>[3],
): Promise<Browser & { principal_id: string }> {
  const { principal_id, token } = await invited(owner, name, roles, more);
  const browser = createBrowser(url);
  const enrolled = await browser.enrol(token);
  if (enrolled.status !== 201)
    throw new Error(`${name} could not enrol: ${enrolled.body.code} ${enrolled.body.detail}`);
  return Object.assign(browser, { principal_id });
}
