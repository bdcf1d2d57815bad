import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path, { join } from 'node:path';
import { PROFILES, SERVICES } from '@counterstamp/manifest-core';
import { serviceUrl } from '@counterstamp/manifest-store';
import { DCLinter } from 'dclint';
import { validate } from 'dockerfile-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { type ComposeService, readCompose } from './compose.ts';
import { environmentOf, lastOf, readDockerfile } from './dockerfile.ts';

const WORKERS = ['preflight', 'executor', 'verifier', 'reconciler'];
const compose = readCompose('docker-compose.yml');
const services = Object.entries(compose.services);
const service = (name: string): ComposeService => compose.services[name] ?? expect.fail(`no service ${name}`);
const ours = services.filter(([, one]) => one.image === 'counterstamp:local');

describe('docker-compose.yml', () => {
  // Ours is sorted by what depends on what, not by the alphabet, and we build the one image that we name.
  const off = ['services-alphabetical-order', 'service-keys-order', 'top-level-properties-order', 'no-build-and-image'];
  const rules = {
    ...Object.fromEntries(off.map((rule) => [rule, 0 as const])),
    'require-quotes-in-ports': [1 as const, { quoteType: 'double' }] satisfies [1, object],
  };
  // Its declarations do not resolve under nodenext.
  type Linted = { messages: { line: number; rule: string; message: string }[] };
  const lint = (path: string) =>
    new DCLinter({ rules, quiet: true, debug: false, exclude: [] })
      .lintFiles([path], false)
      .flatMap(({ messages }: Linted) => messages.map(({ line, rule, message }) => `${line} ${rule}: ${message}`));

  test('follows the compose specification, as dclint and its schema see it', () => {
    expect(lint('docker-compose.yml')).toEqual([]);
  });

  test('would be caught with a word that the specification does not know', () => {
    const folder = mkdtempSync(join(tmpdir(), 'cs-compose-'));
    const path = join(folder, 'docker-compose.yml');
    writeFileSync(
      path,
      readFileSync('docker-compose.yml', 'utf8').replace('    restart: unless', '    restrat: unless'),
    );
    expect(lint(path)).toEqual([expect.stringContaining('invalid-schema')]);
    rmSync(folder, { recursive: true });
  });

  test('has the whole fleet and what it needs', () => {
    expect(Object.keys(compose.services).sort()).toEqual(
      [...SERVICES, 'grafana', 'migrate', 'postgres', 'prometheus', 'redis', 'sandbox'].sort(),
    );
    for (const name of [...SERVICES, 'sandbox']) expect(service(name).command).toEqual(['service', name]);
  });

  test.each(services)('%s is watched, comes back and holds no privilege', (name, one) => {
    if (name === 'migrate') expect(one).toMatchObject({ restart: 'no', healthcheck: { disable: true } });
    else {
      expect(one.restart).toBe('unless-stopped');
      // Ours have the image's HEALTHCHECK.
      if (one.image !== 'counterstamp:local') expect(one.healthcheck?.test?.length).toBeGreaterThan(1);
      else expect(one.healthcheck).toBeUndefined();
    }
    expect(Object.keys(one)).not.toEqual(expect.arrayContaining(['privileged']));
    expect(one).not.toHaveProperty('cap_add');
    expect(one).not.toHaveProperty('network_mode');
    expect(one).not.toHaveProperty('pid');
    expect(JSON.stringify(one.volumes ?? [])).not.toContain('docker.sock');
    expect(one.image).toMatch(/:[^:]+$/);
    expect(one.image).not.toMatch(/:latest$/);
    for (const port of one.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/);
  });

  test.each(ours)('%s runs without a privilege and cannot write its files', (_, one) => {
    expect(one).toMatchObject({ read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] });
  });

  test.each(WORKERS)('%s can run any number of times', (name) => {
    expect(service(name)).not.toHaveProperty('container_name');
    expect(service(name)).not.toHaveProperty('ports');
  });

  test.each(SERVICES)('%s is handed its own secrets alone, and drains before it is killed', (name) => {
    const { secrets = [], environment = {}, stop_grace_period = '', depends_on } = service(name);
    const own = [
      `${name}_database_url`,
      'redis_url',
      'data_key',
      ...(name === 'api' ? ['installation_key'] : ['payments_read_key']),
      ...(['api', 'executor'].includes(name) ? ['trusted_keys'] : []),
      ...(name === 'reconciler' ? ['checkpoint_key'] : []),
      ...(name === 'executor' ? ['payments_write_key'] : []),
    ];
    expect([...secrets].sort()).toEqual(own.sort());
    const read = Object.entries(environment).filter(([variable]) => variable.endsWith('_FILE'));
    expect(read.map(([, path]) => path).sort()).toEqual(own.map((secret) => `/run/secrets/${secret}`).sort());
    expect(Number(/^(\d+)s$/.exec(stop_grace_period)?.[1]) * 1_000).toBeGreaterThanOrEqual(
      PROFILES.production.drain_grace_ms + 5_000,
    );
    expect(depends_on?.migrate).toEqual({ condition: 'service_completed_successfully' });
  });

  test('only the executor holds the key that writes, and only migrate the owner’s login', () => {
    const holders = (secret: string) =>
      services.filter(([, one]) => one.secrets?.includes(secret)).map(([name]) => name);
    expect(holders('payments_write_key')).toEqual(['executor']);
    expect(holders('owner_database_url')).toEqual(['migrate']);
    expect(holders('role_secret')).toEqual(['migrate']);
    expect(holders('postgres_password')).toEqual(['postgres']);
    expect(holders('grafana_password')).toEqual(['grafana']);
  });

  test('no password stands in it: what is secret comes from a file', () => {
    const secretNames = /(PASSWORD|SECRET|_KEY|DATABASE_URL|REDIS_URL)$/;
    for (const [name, { environment = {} }] of services)
      expect(
        Object.keys(environment).filter((variable) => secretNames.test(variable)),
        name,
      ).toEqual([]);
  });

  test('databases are reached from inside only', () => {
    expect(compose.networks.data).toEqual({ internal: true });
    for (const name of ['postgres', 'redis', 'migrate']) expect(service(name).networks).toEqual(['data']);
    for (const name of ['sandbox', 'prometheus', 'grafana']) expect(service(name).networks).toEqual(['default']);
  });

  test('names no variable that the code does not read', () => {
    const read = new Set(sourceText().match(/\b(COUNTERSTAMP|SANDBOX)_[A-Z0-9_]+\b/g));
    const named = new Set(
      [
        ...ours.flatMap(([, one]) => Object.keys(one.environment ?? {})),
        ...Object.keys(environmentOf(readDockerfile('Dockerfile').at(-1))),
      ]
        .map((variable) => variable.replace(/_FILE$/, ''))
        .filter(
          (variable) =>
            /^(COUNTERSTAMP|SANDBOX)_/.test(variable) &&
            !/^COUNTERSTAMP_(API|PREFLIGHT|EXECUTOR|VERIFIER|RECONCILER)_DATABASE_URL$/.test(variable),
        ),
    );
    expect(named.size).toBeGreaterThan(8);
    expect([...named].filter((variable) => !read.has(variable))).toEqual([]);
  });
});

describe('Dockerfile', () => {
  const stages = readDockerfile('Dockerfile');
  const image = stages.at(-1);

  test('has no fault that its linter knows', () => {
    expect(validate(readFileSync('Dockerfile', 'utf8'))).toEqual([]);
  });

  test('stands on one pinned base for build and run, and downloads nothing by itself', () => {
    expect(new Set(stages.map(({ base }) => base))).toEqual(new Set(['node:24-bookworm-slim']));
    const all = stages.flatMap(({ instructions }) => instructions);
    expect(all.map(({ keyword }) => keyword)).not.toContain('ADD');
    expect(all.filter(({ text }) => /https?:\/\/|curl|wget|apt-get/.test(text))).toEqual([]);
  });

  test('runs as a plain user with a number, node itself as PID 1, on no shell', () => {
    expect(lastOf(image, 'USER')?.words).toEqual(['1000:1000']);
    expect(lastOf(image, 'ENTRYPOINT')?.exec?.[0]).toBe('node');
    expect(lastOf(image, 'CMD')?.exec).toBeDefined();
    expect(lastOf(image, 'HEALTHCHECK')?.exec?.slice(0, 2)).toEqual(['node', '-e']);
    expect(image?.instructions.some(({ keyword }) => keyword === 'RUN')).toBe(false);
  });

  test('sets what README says keeps a worker small, and no secret', () => {
    const environment = environmentOf(image);
    const flags = /`NODE_OPTIONS=([^`]+)`/.exec(readFileSync('README.md', 'utf8'))?.[1];
    expect(environment.NODE_OPTIONS).toBe(flags);
    expect(environment.NODE_ENV).toBe('production');
    expect(Object.keys(environment).filter((name) => /SECRET|KEY|PASSWORD|URL/.test(name))).toEqual([]);
    expect(lastOf(image, 'EXPOSE')?.words).toEqual([environment.COUNTERSTAMP_HTTP_PORT]);
  });
});

describe('deploy/secrets.sh', () => {
  let folder: string;
  const secret = (name: string) => readFileSync(join(folder, name), 'utf8').replace(/\n$/, '');
  const make = () => execFileSync('sh', ['deploy/secrets.sh', folder], { encoding: 'utf8' });
  beforeAll(() => {
    folder = join(mkdtempSync(join(tmpdir(), 'cs-secrets-')), 'secrets');
    make();
  });
  afterAll(() => rmSync(join(folder, '..'), { recursive: true }));

  test('makes every secret that docker-compose.yml names, where only the owner of the folder gets at them', () => {
    const named = Object.entries(compose.secrets).map(([name, { file }]) => {
      expect(file).toBe(`./deploy/secrets/${name}`);
      return name;
    });
    expect(readdirSync(folder).sort()).toEqual(named.sort());
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    // Compose mounts them as they are; the containers' users are not ours.
    for (const name of named) expect(statSync(join(folder, name)).mode & 0o777, name).toBe(0o444);
  });

  test.each(SERVICES)('derives the login of %s as migrate does', (name) => {
    expect(secret(`${name}_database_url`)).toBe(serviceUrl(secret('owner_database_url'), name, secret('role_secret')));
  });

  test('keeps what is there', () => {
    const before = readdirSync(folder).map((name) => [name, secret(name)]);
    rmSync(join(folder, 'redis_url'));
    make();
    expect(readdirSync(folder).map((name) => [name, secret(name)])).toEqual(before);
  });

  test('git never sees them', () => {
    expect(execFileSync('git', ['check-ignore', 'deploy/secrets/role_secret'], { encoding: 'utf8' })).toContain(
      'role_secret',
    );
  });
});

describe('deploy/prometheus.yml', () => {
  test('scrapes every service where the image listens', () => {
    const { scrape_configs } = parse(readFileSync('deploy/prometheus.yml', 'utf8')) as {
      scrape_configs: { job_name: string; dns_sd_configs?: { names: string[]; port: number }[] }[];
    };
    const [found] = scrape_configs.find(({ job_name }) => job_name === 'counterstamp')?.dns_sd_configs ?? [];
    expect([...(found?.names ?? [])].sort()).toEqual([...SERVICES].sort());
    expect(String(found?.port)).toBe(environmentOf(readDockerfile('Dockerfile').at(-1)).COUNTERSTAMP_HTTP_PORT);
  });
});

describe('what Prometheus and Grafana are handed', () => {
  /** Where a container finds a file of the repository, by its volumes. */
  const seenBy = (name: string, file: string) => {
    for (const volume of service(name).volumes ?? []) {
      const [from = '', to = '', mode] = volume.split(':');
      const inside = path.relative(from, `./${file}`);
      if (from.startsWith('./') && !inside.startsWith('..')) return { path: path.join(to, inside), mode };
    }
    return undefined;
  };

  test('the rules lie where the configuration looks for them, and cannot be written', () => {
    const { rule_files } = parse(readFileSync('deploy/prometheus.yml', 'utf8')) as { rule_files: string[] };
    expect(rule_files.length).toBeGreaterThan(0);
    for (const file of rule_files)
      expect(seenBy('prometheus', `deploy/${file}`)).toEqual({ path: `/etc/prometheus/${file}`, mode: 'ro' });
  });

  test('every dashboard lies where Grafana is told to look, asks the data source that it is told of, and cannot be written', () => {
    const told = 'deploy/grafana/provisioning';
    expect(seenBy('grafana', told)).toEqual({ path: '/etc/grafana/provisioning', mode: 'ro' });
    const { providers } = parse(readFileSync(`${told}/dashboards/counterstamp.yml`, 'utf8')) as {
      providers: { options: { path: string }; allowUiUpdates: boolean }[];
    };
    const dashboards = readdirSync('deploy/grafana/dashboards');
    expect(dashboards).toHaveLength(6);
    for (const name of dashboards)
      expect(seenBy('grafana', `deploy/grafana/dashboards/${name}`)).toEqual({
        path: `${providers[0]?.options.path}/${name}`,
        mode: 'ro',
      });
    expect(providers).toMatchObject([{ allowUiUpdates: false }]);
    const { datasources } = parse(readFileSync(`${told}/datasources/prometheus.yml`, 'utf8')) as {
      datasources: { url: string; type: string; isDefault: boolean }[];
    };
    expect(datasources).toMatchObject([{ type: 'prometheus', url: 'http://prometheus:9090', isDefault: true }]);
    // The password alone comes from outside, as a file.
    expect(service('grafana').environment?.GF_SECURITY_ADMIN_PASSWORD__FILE).toBe('/run/secrets/grafana_password');
  });
});

describe('deploy/redis.conf', () => {
  test('never evicts, and keeps the queues on disk', () => {
    const lines = readFileSync('deploy/redis.conf', 'utf8').split('\n');
    expect(lines).toEqual(
      expect.arrayContaining(['maxmemory-policy noeviction', 'appendonly yes', 'include /run/secrets/redis_auth']),
    );
    expect(service('redis').command).toEqual(['redis-server', '/etc/redis.conf']);
    expect(service('redis').volumes).toContain('./deploy/redis.conf:/etc/redis.conf:ro');
  });
});

/** Our sources without the tests, as one text. */
function sourceText(): string {
  return ['packages', 'services', 'apps']
    .flatMap((parent) => readdirSync(parent).map((name) => join(parent, name, 'src')))
    .filter((folder) => existsSync(folder))
    .flatMap((folder) => readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((file) => join(folder, file)))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
    .map((file) => readFileSync(file, 'utf8'))
    .join('\n');
}
