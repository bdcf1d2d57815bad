import { HOLD_SCOPE_ALL, HoldBody, HoldParameters, type Holds, type ReleasedHold } from '@counterstamp/api-contract';
import { parseWith } from '@counterstamp/manifest-core';
import { HOLD_ALL, type Hold } from '@counterstamp/manifest-store';
import { type Answer, answered, type Call } from './command.ts';
import { installationRefusal } from './installation.ts';
import { type Refused, refused, refusedBy } from './problem.ts';
import { readJsonBody } from './raw-body.ts';

/** What is on hold, for whoever may switch it. */
export async function listHolds({ deps, who }: Call): Promise<Answer<Holds>> {
  return answered({ holds: (await deps.store.holds(who.tenant_id)).map(shown) });
}

/** Holds every dispatch or those of one connector. Runs wait where they are; what was sent before stays sent. */
export async function setHold(call: Call): Promise<Answer<Holds>> {
  const { deps, who } = call;
  const foreign = installationRefusal(call);
  if (foreign !== undefined) return foreign;
  const scope = scopeOf(call);
  if (!scope.ok) return scope.refused;
  const json = await readJsonBody(call.request);
  if (!json.ok) return refusedBy(json.refusal);
  const body = parseWith(HoldBody, json.value);
  if (!body.ok) return refusedBy(body.refusal);

  const connectors = new Set([...deps.workflows.values()].map((door) => door.connector.name));
  // A typing error must not look like a brake that was pulled.
  if (scope.value !== HOLD_SCOPE_ALL && !connectors.has(scope.value)) {
    const known = [HOLD_SCOPE_ALL, ...connectors].join(', ');
    return refused('value_invalid', '/scope', { detail: `there is no connector ${scope.value}; known: ${known}` });
  }
  await deps.store.setHold(who, stored(scope.value), body.value.reason);
  return listHolds(call);
}

/** Releases one hold. The runs that waited come back by their own timers, and each dispatch checks everything again. */
export async function releaseHold(call: Call): Promise<Answer<ReleasedHold>> {
  const { deps, who } = call;
  const foreign = installationRefusal(call);
  if (foreign !== undefined) return foreign;
  const scope = scopeOf(call);
  if (!scope.ok) return scope.refused;
  // Also of a connector that this version no longer knows: what holds can always be released.
  const before = await deps.store.holds(who.tenant_id);
  const released = before.some((hold) => hold.scope === stored(scope.value));
  if (released) await deps.store.setHold(who, stored(scope.value), null);
  return answered({ released, holds: (await deps.store.holds(who.tenant_id)).map(shown) });
}

/** The holds that keep a run of this connector from being dispatched, as a condition of its dispatch. */
export function holdGuard(
  holds: readonly Hold[],
  connector: string,
): { guard: 'no_hold'; pass: boolean; detail: string } {
  const effective = holds.filter((hold) => hold.scope === HOLD_ALL || hold.scope === connector);
  const detail = effective.map((hold) => {
    const what = hold.scope === HOLD_ALL ? 'everything is' : `${hold.scope} is`;
    return `${what} on hold since ${hold.set_at}: ${hold.reason}`;
  });
  return {
    guard: 'no_hold',
    pass: effective.length === 0,
    detail: effective.length === 0 ? `nothing holds ${connector}` : detail.join('; '),
  };
}

function scopeOf(call: Call): { ok: true; value: string } | { ok: false; refused: Refused } {
  const parsed = parseWith(HoldParameters, call.parameters);
  return parsed.ok ? { ok: true, value: parsed.value.scope } : { ok: false, refused: refusedBy(parsed.refusal) };
}

/** The database's name of a scope: `*` can be no connector's. */
function stored(scope: string): string {
  return scope === HOLD_SCOPE_ALL ? HOLD_ALL : scope;
}

function shown(hold: Hold): Hold {
  return { ...hold, scope: hold.scope === HOLD_ALL ? HOLD_SCOPE_ALL : hold.scope };
}
