import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { Passkeys, type RunView } from '@counterstamp/api-contract';
import { SERVICES } from '@counterstamp/manifest-core';
import { createApiKey, serviceUrl } from '@counterstamp/manifest-store';
import { generateSigningKey } from '@counterstamp/signatures';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type Browser, createBrowser, invited } from '../testing/browser.ts';
import { type Fleet, poll, type ServiceProcess } from '../testing/fleet.ts';
import { type Collector, startCollector } from '../testing/otlp-collector.ts';
import { TEST_ROLE_PREFIX, TEST_SECRET } from '../testing/store-fixture.ts';
import { testFleet } from '../testing/test-fleet.ts';
import { testIds } from '../testing/test-ids.ts';

const TENANT = 'shop_north';

/** Words about a person that a caller sends wherever free text may stand. */
const PERSONAL = 'Wilhelmina Ostrowska, 7 Quince Lane';
/** How the caller names that person. */
const SUBJECT = 'customer_ostrowska_7';

/** By which the fleet is known to whoever gathers its spans. */
const COLLECTOR_TOKEN = randomBytes(24).toString('base64url');

/** What nobody should be able to read by the way, by a name that a failure may show. */
type Secrets = Map<string, string>;

describe('what is secret or personal stays out of what everybody sees', () => {
  let fleet: Fleet;
  let collector: Collector;
  let secrets: Secrets;
  /** Every answer that was a refusal or a fault, headers and body. */
  const problems: string[] = [];
  const metrics: string[] = [];
  /** What processes that were set up wrongly said before they ended. */
  const faults: string[] = [];
  let commandLines: string[];
  let logs: { service: string; text: string }[];
  /** Runs that were asked for: what is meant to be found. */
  const asked: string[] = [];

  beforeAll(async () => {
    const send = globalThis.fetch;
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (...request) => {
      const response = await send(...request);
      if (response.status >= 400) problems.push(JSON.stringify([...response.headers]), await response.clone().text());
      return response;
    });
    // Whatever a process may ever log, it logs here.
    collector = await startCollector();
    fleet = await testFleet('postgres', undefined, {
      COUNTERSTAMP_DEV: '0',
      LOG_LEVEL: 'trace',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer%20${COLLECTOR_TOKEN}`,
      OTEL_BSP_SCHEDULE_DELAY: '100',
    });
    secrets = secretsOf(fleet);
    await aLife();
    for (const { port } of running())
      metrics.push(await fetch(`http://127.0.0.1:${port}/metrics`).then((answer) => answer.text()));
    commandLines = running().map(({ child }) => commandLineOf(child.pid ?? 0));
    logs = await lastWords();
  }, 120_000);
  afterAll(async () => {
    vi.restoreAllMocks();
    await fleet?.stop();
    await collector?.close();
  }, 30_000);

  const running = (): ServiceProcess[] => fleet.processes.filter(({ port }) => port !== 0);

  /** Everything that people and programs do, and most of what goes wrong. */
  async function aLife(): Promise<void> {
    await setUpWrongly();
    const operator = await createApiKey(fleet.owner, testIds, { tenant_id: TENANT, name: 'olga', role: 'operator' });
    secrets.set('key of the operator', secretOf(operator.key));
    await knockAtTheDoor(operator.key);
    const ada = await enrolled('ada');
    await ada.signIn();
    remember('ada again', ada);
    const bystander = await invitation('bo');
    await callNames(ada, bystander);
    await approveThroughAFailure(ada);
    await rejectThroughAFault(ada);
    await loseTheDatabase();
  }

  /** Processes whose configuration holds secrets with something wrong about them. */
  async function setUpWrongly(): Promise<void> {
    const torn = generateSigningKey();
    secrets.set('a torn signing key', privatePart(torn));
    const { host, port, database } = fleet.owner.options;
    const server = `postgres://${host[0]}:${port[0]}/${database}`;
    const wrong = serviceUrl(server, 'verifier', 'the-secret-of-another-installation', TEST_ROLE_PREFIX);
    secrets.set('password of a login that fails', new URL(wrong).password);
    const attempts = [
      fleet.start('api', {
        COUNTERSTAMP_INSTALLATION_KEY: `${torn}x`,
        COUNTERSTAMP_TRUSTED_KEYS: `{"keys":[${torn}]}`,
      }),
      fleet.start('reconciler', { COUNTERSTAMP_DATA_KEY: `${secrets.get('data key')}!` }),
      fleet.start('verifier', { COUNTERSTAMP_VERIFIER_DATABASE_URL: wrong }),
    ];
    for (const attempt of await Promise.allSettled(attempts)) {
      expect(attempt).toMatchObject({ status: 'rejected' });
      if (attempt.status === 'rejected') faults.push(String(attempt.reason));
    }
  }

  /** Keys that open nothing, and bodies that are none. */
  async function knockAtTheDoor(operatorKey: string): Promise<void> {
    const mistyped = `${fleet.keys.requester.slice(0, -1)}${fleet.keys.requester.endsWith('A') ? 'B' : 'A'}`;
    secrets.set('a mistyped key', secretOf(mistyped));
    const url = `${fleet.apiUrl}/v1/runs`;
    const asJson = { 'content-type': 'application/json' };
    const known = { authorization: `Bearer ${fleet.keys.requester}` };
    const attempts: [expected: number, where: string, request: RequestInit][] = [
      [401, url, { headers: { authorization: `Bearer ${mistyped}` } }],
      [401, url, { headers: { authorization: `Basic ${operatorKey}` } }],
      [401, `${url}?key=${operatorKey}`, {}],
      [400, `${url}?limit=${operatorKey}`, { headers: known }],
      [400, url, { method: 'POST', headers: { ...known, ...asJson }, body: `{"request_id": "${PERSONAL}` }],
      [
        400,
        url,
        {
          method: 'POST',
          headers: { ...known, ...asJson },
          body: JSON.stringify({ request_id: operatorKey, input: { reason: PERSONAL, amount: PERSONAL } }),
        },
      ],
      [403, `${fleet.apiUrl}/v1/holds/${operatorKey}`, { method: 'PUT', headers: { ...known, ...asJson }, body: '{}' }],
    ];
    for (const [expected, where, request] of attempts)
      expect((await fetch(where, request)).status, `${request.method} ${where}`).toBe(expected);
  }

  async function invitation(name: string): Promise<string> {
    const { token } = await invited(fleet.owner, name, ['approver']);
    secrets.set(`invitation of ${name}`, token);
    return token;
  }

  async function enrolled(name: string): Promise<Browser> {
    const browser = createBrowser(fleet.apiUrl);
    const token = await invitation(name);
    expect(await browser.enrol(token)).toMatchObject({ status: 201 });
    remember(name, browser);
    expect(await browser.enrol(token), 'a link that was used').toMatchObject({ status: 410 });
    return browser;
  }

  function remember(name: string, { cookie, session }: Browser): void {
    secrets.set(`session of ${name}`, cookie?.split('=')[1] ?? '');
    secrets.set(`token of ${name}`, session?.csrf_token ?? '');
  }

  /** A person's own secrets, sent where they do not belong. */
  async function callNames(person: Browser, token: string): Promise<void> {
    const { cookie = '', session } = person;
    const csrf = session?.csrf_token ?? '';
    const sent = [
      person.send('POST', '/v1/session/step-up', { response: { id: csrf, secret: cookie } }),
      person.send('POST', '/v1/session/step-up/options', {}, { 'x-csrf-token': token }),
      person.send('POST', '/v1/session/step-up/options', {}, { authorization: `Bearer ${fleet.keys.approver}` }),
      person.send('POST', '/v1/enrolment', { invitation: token, name: csrf, response: { id: cookie } }),
      person.send('POST', '/v1/enrolment/options', { invitation: `${token}${csrf}` }),
      person.send('POST', `/v1/passkeys/${csrf}/revoke`, {}),
    ];
    for (const { status } of await Promise.all(sent)) expect(status).toBeGreaterThanOrEqual(400);
  }

  async function aRequest(): Promise<RunView> {
    const seeded = await fleet.seed();
    await fleet.fault(seeded.payment_id, { kind: 'error_after_accept', status: 500 });
    const run_id = await fleet.request(seeded, {
      subject: SUBJECT,
      context: [{ source: 'customer_message', text: PERSONAL }],
      input: { order_id: seeded.order_id, requested_amount_minor: 4200, currency: 'USD', reason: PERSONAL },
    });
    asked.push(run_id);
    return await fleet.until(run_id, ['awaiting_approval']);
  }

  function shown({ approval }: RunView): Record<string, unknown> {
    if (approval === null) throw new Error('nothing is asked');
    const { approval_id, approval_digest, action_digest, action_revision } = approval;
    return { approval_id, approval_digest, action_digest, action_revision };
  }

  /** A signed approval, and a provider that performs it and answers with an error. */
  async function approveThroughAFailure(person: Browser): Promise<void> {
    const run = await aRequest();
    const { passkeys } = Passkeys.parse((await person.send('GET', '/v1/passkeys')).body);
    const approve = { ...shown(run), decision: 'approve' };
    const asking = { ...approve, credential_id: passkeys[0]?.credential_id };
    const assertion = await person.sign((await person.challenge(run.run_id, asking)).body);
    const broken = { ...assertion, response: { ...assertion.response, id: 'AAAA', rawId: 'AAAA' } };
    expect((await person.decide(run.run_id, { ...approve, assertion: broken })).status).toBeGreaterThanOrEqual(400);
    expect((await person.decide(run.run_id, { ...approve, reason: PERSONAL, assertion })).status).toBe(200);
    await fleet.until(run.run_id, ['completed']);
  }

  /** A fault of ours: Postgres refuses the row, and names it whole to whoever asked. */
  async function rejectThroughAFault(person: Browser): Promise<void> {
    const run = await aRequest();
    const reject = { ...shown(run), decision: 'reject', reason: PERSONAL };
    await fleet.owner`alter table cs.decision add constraint broken check (decision <> 'reject') not valid`;
    expect(await person.decide(run.run_id, reject)).toMatchObject({ status: 500, body: { code: 'internal_error' } });
    await fleet.owner`alter table cs.decision drop constraint broken`;
    expect((await person.decide(run.run_id, reject)).status).toBe(200);
  }

  /** The connections of every service end at once, as at a failover. */
  async function loseTheDatabase(): Promise<void> {
    await fleet.owner`
      select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name like 'counterstamp-%'`;
    await poll(
      async () => (await fetch(`${fleet.apiUrl}/readyz`)).ok,
      10_000,
      'the api did not come back after it lost the database',
    );
  }

  /** Ends the fleet as a supervisor does, and reads all that it ever said. */
  async function lastWords(): Promise<{ service: string; text: string }[]> {
    await Promise.all(running().map((process) => fleet.end(process, 'SIGTERM')));
    return await Promise.all(
      running().map(async ({ service, log }) => {
        // A stream of this process writes the file, and may be a moment behind.
        await poll(async () => readFileSync(log, 'utf8').includes('"drained"'), 5_000, `${service} did not drain`);
        return { service, text: readFileSync(log, 'utf8') };
      }),
    );
  }

  test('no log holds a secret or a word about a person', () => {
    expect(logs.map(({ service }) => service).sort()).toEqual([...SERVICES].sort());
    for (const { service, text } of logs)
      expect(found(text, secrets, { PERSONAL, SUBJECT }), `log of the ${service}`).toEqual([]);
  });

  test('no span holds a secret or a word about a person', () => {
    expect(collector.authorizations).toEqual(new Set([`Bearer ${COLLECTOR_TOKEN}`]));
    for (const service of SERVICES)
      expect(collector.spans.filter((span) => span.service === service).length, service).toBeGreaterThan(0);
    for (const body of collector.bodies) expect(found(body, secrets, { PERSONAL, SUBJECT })).toEqual([]);
  });

  test('what is meant to be seen is found in the same places: the runs in logs and spans, the services in metrics', () => {
    expect(asked).toHaveLength(2);
    for (const run_id of asked) {
      const where = logs.filter(({ text }) => text.includes(run_id)).map(({ service }) => service);
      expect(where).toEqual(expect.arrayContaining(['preflight']));
      expect(collector.bodies.some((body) => body.includes(run_id))).toBe(true);
      expect(
        logs.find(({ text }) => new RegExp(`"trace_id":"[0-9a-f]{32}".*${run_id}|${run_id}.*"trace_id"`).test(text)),
      ).toBeDefined();
    }
    for (const service of SERVICES) expect(metrics.join('\n')).toContain(`service="${service}"`);
  });

  test('the log of the api tells of the fault all the same', () => {
    const api = logs.find(({ service }) => service === 'api')?.text;
    expect(api).toContain('"message":"a request failed"');
    expect(api).toContain('"constraint_name":"broken"');
  });

  test('no refusal and no fault shows a secret', () => {
    const codes = ['unauthenticated', 'csrf_refused', 'invitation_invalid', 'credentials_ambiguous', 'internal_error'];
    for (const code of codes) expect(problems.join('\n')).toContain(`"code":"${code}"`);
    for (const problem of problems) expect(found(problem, secrets), problem).toEqual([]);
  });

  test('no metric holds a secret or a word about a person', () => {
    expect(metrics).toHaveLength(SERVICES.length);
    for (const text of metrics) expect(found(text, secrets, { PERSONAL, SUBJECT }), text.slice(0, 200)).toEqual([]);
  });

  test('no command line holds a secret', () => {
    for (const line of commandLines) expect(found(line, secrets), line).toEqual([]);
  });

  test('a process that is set up wrongly says what is wrong without repeating it', () => {
    for (const named of [
      'COUNTERSTAMP_INSTALLATION_KEY: ',
      'COUNTERSTAMP_DATA_KEY: ',
      'password authentication failed',
    ])
      expect(faults.join('\n')).toContain(named);
    for (const fault of faults) expect(found(fault, secrets), fault).toEqual([]);
  });

  test('what is looked for would be found', () => {
    for (const [name, secret] of secrets) {
      expect(secret.length, name).toBeGreaterThanOrEqual(10);
      expect(found(`… ${JSON.stringify({ secret })} …`, secrets)).toContain(name);
    }
  });
});

/** Names of the secrets that a text holds. */
function found(text: string, secrets: Secrets, more: Record<string, string> = {}): string[] {
  return [...secrets, ...Object.entries(more)].filter(([, secret]) => text.includes(secret)).map(([name]) => name);
}

/** What an installation keeps to itself. */
function secretsOf(fleet: Fleet): Secrets {
  const { env } = fleet.installation;
  const databasePassword = fleet.owner.options.pass;
  const secrets: Secrets = new Map([
    ['key of the requester', secretOf(fleet.keys.requester)],
    ['key of the approver', secretOf(fleet.keys.approver)],
    ['installation key', privatePart(env.COUNTERSTAMP_INSTALLATION_KEY ?? '')],
    ['checkpoint key', privatePart(env.COUNTERSTAMP_CHECKPOINT_KEY ?? '')],
    ['data key', env.COUNTERSTAMP_DATA_KEY ?? ''],
    ['secret of the logins', TEST_SECRET],
    ['token of the collector', COLLECTOR_TOKEN],
    ['key that writes at the provider', 'sk_sandbox'],
    ['key that reads at the provider', 'rk_sandbox'],
  ]);
  for (const service of SERVICES) {
    const url = new URL(serviceUrl('postgres://127.0.0.1/none', service, TEST_SECRET, TEST_ROLE_PREFIX));
    secrets.set(`password of ${url.username}`, url.password);
  }
  if (typeof databasePassword === 'string') secrets.set('password of the owner', databasePassword);
  return secrets;
}

/** The part of an API key that proves it: its 43 last characters. What stands before says which key it is. */
function secretOf(key: string): string {
  return key.slice(-43);
}

/** The member of a private key that must never be seen. */
function privatePart(jwk: string): string {
  return (JSON.parse(jwk) as { d: string }).d;
}

/** A process's command line, as anybody on the machine may read it. */
function commandLineOf(pid: number): string {
  const file = `/proc/${pid}/cmdline`;
  return existsSync(file) ? readFileSync(file, 'utf8').replaceAll('\0', ' ') : '';
}
