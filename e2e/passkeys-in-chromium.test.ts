/// <reference lib="dom" />
import type { RunView } from '@counterstamp/api-contract';
import { freePort } from '@counterstamp/embedded-postgres';
import { type Browser, type CDPSession, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { invited } from '../testing/browser.ts';
import type { Fleet } from '../testing/fleet.ts';
import { testFleet } from '../testing/test-fleet.ts';

/** Milliseconds for a browser to start on a machine that does much else. */
const BROWSER_MS = 60_000;

/** An answer of the api to a page's fetch, with the members that some of them have. */
interface Answer {
  status: number;
  body: {
    options: PublicKeyCredentialCreationOptionsJSON & PublicKeyCredentialRequestOptionsJSON;
    csrf_token: string;
    pre_image: string;
  };
}

/** A virtual authenticator of Chromium, whose person can be there or not. */
interface Authenticator {
  verifies(person: boolean): Promise<void>;
}

describe('passkeys of a real browser', () => {
  let fleet: Fleet;
  let origin: string;
  let elsewhere: string;
  let browser: Browser;
  let page: Page;
  let authenticator: Authenticator;

  beforeAll(async () => {
    const port = await freePort();
    origin = `http://localhost:${port}`;
    elsewhere = `http://localhost:${await freePort()}`;
    fleet = await testFleet('postgres', undefined, { COUNTERSTAMP_ORIGIN: origin, COUNTERSTAMP_DEV: '0' });
    await fleet.start('api', { COUNTERSTAMP_HTTP_PORT: String(port) });
    browser = await chromium.launch({
      executablePath: '/usr/bin/chromium',
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
      timeout: BROWSER_MS,
    });
    const context = await browser.newContext();
    page = await context.newPage();
    // The pages have an issue of their own: an empty one at the real origin is all that a passkey needs.
    await context.route('**/blank', (route) =>
      route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>blank</title>' }),
    );
    authenticator = await virtualAuthenticator(await context.newCDPSession(page));
    await page.goto(`${origin}/blank`);
  }, 120_000);
  afterAll(async () => {
    await browser?.close();
    await fleet?.stop();
  }, 30_000);

  async function virtualAuthenticator(cdp: CDPSession): Promise<Authenticator> {
    await cdp.send('WebAuthn.enable');
    const { authenticatorId } = await cdp.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        protocol: 'ctap2',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification: true,
        isUserVerified: true,
        automaticPresenceSimulation: true,
      },
    });
    return {
      async verifies(isUserVerified) {
        await cdp.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified });
      },
    };
  }

  /** A fetch of the page: the browser adds cookie and origin by itself. */
  const post = (path: string, body: unknown, csrf_token?: string): Promise<Answer> =>
    page.evaluate(
      async ([where, sent, token]) => {
        const response = await fetch(where, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...(token === undefined ? {} : { 'x-csrf-token': token }) },
          body: JSON.stringify(sent),
        });
        return { status: response.status, body: await response.json() };
      },
      [path, body, csrf_token] as const,
    );
  const get = (path: string): Promise<Answer> =>
    page.evaluate(async (where) => {
      const response = await fetch(where);
      return { status: response.status, body: await response.json() };
    }, path);
  const createPasskey = (options: PublicKeyCredentialCreationOptionsJSON): Promise<Record<string, unknown>> =>
    page.evaluate(async (json) => {
      const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(json);
      const made = (await navigator.credentials.create({ publicKey })) as PublicKeyCredential;
      return { ...made.toJSON() };
    }, options);
  const usePasskey = (options: PublicKeyCredentialRequestOptionsJSON): Promise<Record<string, unknown>> =>
    page.evaluate(async (json) => {
      const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(json);
      const used = (await navigator.credentials.get({ publicKey })) as PublicKeyCredential;
      return { ...used.toJSON() };
    }, options);

  async function enrol(name: string): Promise<Answer> {
    const { token } = await invited(fleet.owner, name, ['approver']);
    const { body } = await post('/v1/enrolment/options', { invitation: token });
    return await post('/v1/enrolment', {
      invitation: token,
      name: 'laptop',
      response: await createPasskey(body.options),
    });
  }

  /** A run that waits, and the challenge that the signed-in person of the page was given for its approval. */
  async function challenged(): Promise<{ run: RunView; shown: Record<string, unknown>; csrf: string; asked: Answer }> {
    const run_id = await fleet.request(await fleet.seed());
    const run = await fleet.until(run_id, ['awaiting_approval']);
    if (run.approval === null) throw new Error('nothing asked');
    const { approval_id, approval_digest, action_digest, action_revision } = run.approval;
    const shown = { approval_id, approval_digest, action_digest, action_revision, decision: 'approve' };
    const csrf = (await get('/v1/session')).body.csrf_token;
    return { run, shown, csrf, asked: await post(`/v1/runs/${run_id}/decisions/challenge`, shown, csrf) };
  }

  const decide = ({ run, shown, csrf, asked }: Awaited<ReturnType<typeof challenged>>, response: unknown) =>
    post(
      `/v1/runs/${run.run_id}/decisions`,
      { ...shown, assertion: { pre_image: asked.body.pre_image, response } },
      csrf,
    );

  test('an invited person enrols, signs in again, approves with a signature, and the executor performs it', async () => {
    const enrolled = await enrol('ada');
    expect(enrolled).toMatchObject({ status: 201, body: { name: 'ada', roles: ['approver'] } });
    await page.context().clearCookies();
    expect((await get('/v1/session')).status).toBe(401);
    const { body } = await post('/v1/session/options', {});
    expect(await post('/v1/session', { response: await usePasskey(body.options) })).toMatchObject({ status: 201 });

    const waiting = await challenged();
    const decided = await decide(waiting, await usePasskey(waiting.asked.body.options));
    expect(decided).toMatchObject({ status: 200, body: { result: 'recorded', decision: { method: 'passkey' } } });
    await fleet.until(waiting.run.run_id, ['completed']);
  });

  test('the same assertion a second time, for another run, is refused', async () => {
    const first = await challenged();
    const response = await usePasskey(first.asked.body.options);
    expect((await decide(first, response)).status).toBe(200);
    const second = await challenged();
    const replayed = await decide({ ...second, asked: first.asked }, response);
    expect(replayed.status).toBeGreaterThanOrEqual(400);
    expect(replayed.status).toBeLessThan(500);
    expect((await fleet.requester.getRun(second.run.run_id)).approval?.decisions).toEqual([]);
  });

  test('signed on another page of the same host name: the origin differs, and nothing is recorded', async () => {
    const waiting = await challenged();
    await page.goto(`${elsewhere}/blank`);
    const response = await usePasskey(waiting.asked.body.options);
    await page.goto(`${origin}/blank`);
    expect(await decide(waiting, response)).toMatchObject({ status: 403, body: { code: 'assertion_invalid' } });
    expect((await fleet.requester.getRun(waiting.run.run_id)).approval?.decisions).toEqual([]);
  });

  test('without the person verified: the browser refuses, and where a page asks for less, the api does', async () => {
    const waiting = await challenged();
    await authenticator.verifies(false);
    try {
      await expect(usePasskey(waiting.asked.body.options)).rejects.toThrow(/NotAllowedError|not allowed/);
      const response = await usePasskey({ ...waiting.asked.body.options, userVerification: 'discouraged' });
      expect(await decide(waiting, response)).toMatchObject({ status: 403, body: { code: 'assertion_invalid' } });
    } finally {
      await authenticator.verifies(true);
    }
  });

  test('a foreign page can neither frame us, nor post with the cookie, nor read an answer', async () => {
    const waiting = await challenged();
    await page.goto(`${elsewhere}/blank`);
    const tried = await page.evaluate(
      async ([where, run_id, body]) => {
        const posted = await fetch(`${where}/v1/runs/${run_id}/decisions`, {
          method: 'POST',
          credentials: 'include',
          headers: { 'content-type': 'text/plain' },
          body: JSON.stringify(body),
        }).then(
          () => 'answered',
          () => 'unreadable',
        );
        const frame = document.createElement('iframe');
        frame.src = `${where}/healthz`;
        const loaded = new Promise((resolve) => frame.addEventListener('load', resolve, { once: true }));
        document.body.append(frame);
        await loaded;
        return { posted, framed: frame.contentDocument !== null };
      },
      [origin, waiting.run.run_id, waiting.shown] as const,
    );
    // A refused frame shows the browser's own error page, whose document no page may read.
    expect(tried).toEqual({ posted: 'unreadable', framed: false });
    await page.goto(`${origin}/blank`);
    expect((await fleet.requester.getRun(waiting.run.run_id)).approval?.decisions).toEqual([]);
  });
});
