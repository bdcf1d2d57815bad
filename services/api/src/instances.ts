import {
  FenceBody,
  type FencedInstance,
  InstanceParameters,
  type Instances,
  InstancesQuery,
  type Instance as InstanceView,
} from '@counterstamp/api-contract';
import { epochMs, parseWith, SERVICES } from '@counterstamp/manifest-core';
import type { Instance } from '@counterstamp/manifest-store';
import { type Answer, answered, type Call } from './command.ts';
import { installationRefusal } from './installation.ts';
import { refused, refusedBy } from './problem.ts';
import { parseQuery } from './query.ts';
import { readJsonBody } from './raw-body.ts';

/** How far back the sign of life of a refused instance is looked for. */
const LOOK_BACK = 1_000;

/** Process lives of the installation, newest first. */
export async function listInstances(call: Call): Promise<Answer<Instances>> {
  const { deps, request } = call;
  const foreign = installationRefusal(call);
  if (foreign !== undefined) return foreign;
  const query = parseQuery(InstancesQuery, request);
  if (!query.ok) return refusedBy(query.refusal);
  const { service, limit } = query.value;
  const found = await deps.store.instances({ limit, ...(service === undefined ? {} : { service }) });
  return answered({ instances: found.map((one) => shown(one, deps.durations.pause_ms)) });
}

/** Takes an operator's word that an instance is gone, unless it shows a sign of life; or that its credential was rotated. */
export async function fenceInstance(call: Call): Promise<Answer<FencedInstance>> {
  const { deps, who } = call;
  const foreign = installationRefusal(call);
  if (foreign !== undefined) return foreign;
  const parameters = parseWith(InstanceParameters, call.parameters);
  if (!parameters.ok) return refusedBy(parameters.refusal);
  const { instance_id } = parameters.value;
  const json = await readJsonBody(call.request);
  if (!json.ok) return refusedBy(json.refusal);
  const body = parseWith(FenceBody, json.value);
  if (!body.ok) return refusedBy(body.refusal);

  const { evidence, credential_rotated = false } = body.value;
  const { pause_ms } = deps.durations;
  const result = await deps.store.fence(who, { instance_id, evidence, credential_rotated, pause_ms });
  switch (result) {
    case 'ended':
    case 'already_ended':
      return answered({ instance_id, result });
    case 'instance_unknown':
      return refused('instance_not_found', '/instance_id', { audited: true });
    case 'role_missing':
      return refused('role_missing');
    case 'instance_alive': {
      const found = await deps.store.instances({ limit: LOOK_BACK });
      const instance = found.find((one) => one.instance_id === instance_id);
      return refused('instance_alive', '/instance_id', {
        audited: true,
        ...(instance === undefined ? {} : { detail: signOfLife(instance, pause_ms) }),
      });
    }
  }
}

function signOfLife({ lease, beat_at, host, pid }: Instance, pause_ms: number): string {
  const where = host === null || pid === null ? '' : ` (process ${pid} on ${host})`;
  const sign = lease === 'held' ? 'its session lease is held' : `it counts as alive for ${pause_ms} ms after that`;
  return `last heartbeat${where} at ${beat_at}; ${sign}. End the process, or rotate its credential and say so`;
}

/** Fenced: credential rotated, or end recorded, lease gone and heartbeat older than Z (protocol rule 20, `cs.commit_verdict`). */
function shown(instance: Instance, pause_ms: number): InstanceView {
  const { service, ended_by, ended_at, beat_at, lease, credential_rotated } = instance;
  const at = beat_at.slice(-4, -1);
  const quiet = new Date(epochMs(beat_at) + pause_ms).toISOString().replace('Z', `${at}Z`);
  return {
    ...instance,
    service: oneOf(SERVICES, service),
    ended_by: ended_by === null ? null : oneOf(['self', 'supervisor', 'operator'] as const, ended_by),
    fenced_from: credential_rotated ? ended_at : ended_at === null || lease === 'held' ? null : quiet,
  };
}

function oneOf<T extends string>(known: readonly T[], text: string): T {
  const found = known.find((one) => one === text);
  if (found === undefined) throw new Error(`an instance names ${text}`);
  return found;
}
