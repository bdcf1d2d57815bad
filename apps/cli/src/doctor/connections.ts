import { checkPostgresQueue, checkRedis } from '@counterstamp/stage-queue';
import { type Finding, failed, ok } from './finding.ts';
import type { Subject } from './subject.ts';

/** Milliseconds for the api's answer: it gives its database 1 s. */
const API_MS = 3_000;

/** Whether the queues' backend can carry them: each Redis once, the queues in Postgres as each service's own login. */
export async function queueFindings({ services }: Pick<Subject, 'services'>): Promise<Finding[]> {
  const redis = new Set<string>();
  const found: Promise<Finding>[] = [];
  for (const { service, connections } of services) {
    if (connections === undefined) continue;
    const { queue } = connections;
    if (queue.backend === 'postgres') found.push(postgresFinding(service, queue.url));
    else redis.add(queue.url);
  }
  if (redis.size > 1) {
    found.push(
      Promise.resolve(
        failed(
          'queue',
          `The services name ${redis.size} different Redis URLs, so their hints do not meet.`,
          'Give every service the same REDIS_URL.',
        ),
      ),
    );
  }
  for (const url of redis) found.push(redisFinding(url));
  return await Promise.all(found);
}

async function redisFinding(url: string): Promise<Finding> {
  const check = await checkRedis(url);
  if (check.kind === 'ok') {
    const name = check.flavour === 'valkey' ? 'Valkey' : 'Redis';
    return ok('queue', `${name} ${check.version} answers and evicts nothing.`);
  }
  return failed('queue', ...split(check.message));
}

async function postgresFinding(service: string, url: string): Promise<Finding> {
  const check = await checkPostgresQueue(url);
  const name = `queue of ${service}`;
  if (check.kind === 'ok')
    return ok(name, `in Postgres: schema version ${check.version}, with every right that it needs.`);
  return failed(name, ...split(check.message));
}

/** The sentence that says what is wrong, and those that say what to do. */
function split(message: string): [string, string] {
  const end = message.search(/\. [A-Z]/);
  return end < 0 ? [message, 'Correct that, then look again.'] : [message.slice(0, end + 1), message.slice(end + 2)];
}

/** Whether the api answers, when one should. */
export async function apiFindings({ api_url }: Pick<Subject, 'api_url'>): Promise<Finding[]> {
  if (api_url === undefined) return [];
  const answer = await fetch(`${api_url.replace(/\/+$/, '')}/readyz`, {
    redirect: 'manual',
    signal: AbortSignal.timeout(API_MS),
  }).catch(() => undefined);
  await answer?.body?.cancel().catch(() => undefined);
  if (answer === undefined) {
    return [
      failed(
        'api',
        `${api_url} does not answer within ${API_MS / 1_000} s.`,
        'Start it with `counterstamp up` or `counterstamp service api`, or correct COUNTERSTAMP_URL.',
      ),
    ];
  }
  if (answer.status !== 200) {
    return [
      failed(
        'api',
        `${api_url} answers ${answer.status}: it is not ready.`,
        'Read its log; it is ready when its database answers within 1 s.',
      ),
    ];
  }
  return [ok('api', `${api_url} is ready.`)];
}
