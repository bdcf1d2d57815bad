import {
  type ObservedEffect,
  type RunStanding,
  SupportBody,
  type SupportedVerdict,
  VerdictBody,
} from '@counterstamp/api-contract';
import {
  canonicalJson,
  digestOf,
  type ErrorCode,
  formatMoney,
  type JsonObject,
  parseWith,
  type StopReason,
  settleMs,
  stopReason,
} from '@counterstamp/manifest-core';
import type { VerdictCommit, VerdictOutcome } from '@counterstamp/manifest-store';
import { inRunSpan } from '@counterstamp/telemetry';
import type { z } from 'zod';
import { type Answer, answered, type Call, runIdOf } from './command.ts';
import { type Refused, refused, refusedBy } from './problem.ts';
import { readJsonBody } from './raw-body.ts';

type Verdict = z.output<typeof VerdictBody>;

/**
 * Records what an operator saw of an effect in doubt, on the revision that they saw (protocol rule 20). The database judges under the row
 * lock. A lost swap is refused and never tried again: what changed meanwhile may change what a person would say.
 */
export async function verdict(call: Call): Promise<Answer<RunStanding>> {
  const { deps, who, hints } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const { run_id } = id;
  const json = await readJsonBody(call.request);
  if (!json.ok) return refusedBy(json.refusal);
  const body = parseWith(VerdictBody, json.value);
  if (!body.ok) return refusedBy(body.refusal);

  const loaded = await deps.store.load(who.tenant_id, run_id);
  if (loaded === undefined) return refused('run_not_found');
  const door = deps.workflows.get(loaded.manifest.workflow);
  if (door === undefined) return refused('workflow_unknown');
  await deps.failpoint.reach('person.read.before-commit', run_id);
  const said = observedIn(body.value);
  const { verdict } = body.value;
  const outcome = await inRunSpan(loaded.manifest, 'verdict', { verdict }, async (span) => {
    const judged = await deps.store.verdict(who, {
      run_id,
      expected: body.value.revision,
      verdict,
      evidence: body.value.evidence,
      observed_at: body.value.observed_at ?? null,
      ...said,
      settle_ms: settleMs(deps.durations, door.visibilityMs),
      pause_ms: deps.durations.pause_ms,
      wake_in_ms: deps.durations.look_min_ms,
    });
    span.set({ result: judged.result });
    // A closed run is looked at again when its audit is due, not before.
    if (judged.result === 'recorded' && judged.row !== null && judged.row.state !== 'failed')
      hints.send(judged.row, 'stage.committed.before-hint');
    return judged;
  });
  const { result, row } = outcome;
  if (result !== 'recorded') return refusalOf({ ...outcome, result }, body.value);
  if (row === null) throw new Error('a verdict was recorded, but its run is not there');
  return answered({ run_id, state: row.state, revision: row.revision });
}

/** What a verdict says of an effect, and how it closes the run. */
function observedIn(said: Verdict): Pick<VerdictCommit, 'provider_ref' | 'effect' | 'effect_digest' | 'stop_reason'> {
  const nothing = { provider_ref: null, effect: null, effect_digest: null, stop_reason: null };
  switch (said.verdict) {
    case 'landed':
      return { ...nothing, provider_ref: said.provider_ref ?? null };
    case 'did_not_land':
      return { ...nothing, stop_reason: stopReason('person_absent', `Looked at ${said.observed_at}.`) };
    case 'landed_differently': {
      const { provider_ref, status, amount_minor, currency, target } = said.effect;
      const effect: JsonObject = {
        provider_ref,
        status,
        ...(amount_minor === undefined ? {} : { amount_minor }),
        ...(currency === undefined ? {} : { currency }),
        ...(target === undefined ? {} : { target }),
      };
      return {
        provider_ref,
        effect,
        effect_digest: digestOf('cs.observed-effect.v1', canonicalJson(effect)),
        stop_reason: differenceOf(said.effect),
      };
    }
    case 'still_unknown':
    case 'look_again':
      return nothing;
  }
}

function differenceOf({ provider_ref, status, amount_minor, currency, target }: ObservedEffect): StopReason {
  const money = amount_minor === undefined || currency === undefined ? [] : [formatMoney(amount_minor, currency)];
  const seen = [provider_ref, ...money, ...(target === undefined ? [] : [`on ${target}`]), `status ${status}`];
  return stopReason('settled_with_difference', `Observed: ${seen.join(', ')}.`);
}

type VerdictRefusal = Exclude<VerdictOutcome['result'], 'recorded'>;

/** Why the database refused a verdict, and what the person can do about it. */
function refusalOf(
  { result, detail }: { result: VerdictRefusal; detail: string | null },
  { revision }: Pick<Verdict, 'revision'>,
): Refused {
  const told = (code: ErrorCode, path = '', sentence?: string) =>
    refused(code, path, {
      // Unknown runs are turned away before anything is written; every other refusal is in the audit already.
      audited: result !== 'run_not_found',
      ...(sentence === undefined ? {} : { detail: sentence }),
    });
  switch (result) {
    case 'run_not_found':
    case 'role_missing':
      return told(result);
    case 'evidence_stands':
      return told(
        result,
        '',
        detail === null
          ? undefined
          : `a look found an effect of this run (parked: ${detail}); record it with landed or landed_differently, or have the fleet look again (\`counterstamp reconcile ID --look-again\`): once it finds nothing, that may be recorded`,
      );
    case 'not_in_doubt':
      return told(result, '', `the run is ${detail}`);
    case 'stale_revision':
      return told(result, '/revision', `the run is at revision ${detail}; load it again and judge what it shows`);
    case 'observed_in_future':
      return told('value_invalid', '/observed_at', `it is ${detail} by the database's clock; nobody has seen more yet`);
    case 'not_settled':
      return told(
        result,
        '/observed_at',
        `the run settles at ${detail}: look at the external system after that, and name the time of that look`,
      );
    case 'instance_not_fenced':
      return told(
        result,
        '',
        `not fenced: ${detail}; end or restart the process (one that is told to end records it by itself), or record its end with \`counterstamp instance fence ID --evidence …\`, or have a second operator send a support of kind waive_fencing`,
      );
    case 'second_person_needed':
      return told(
        result,
        '/effect',
        `a second operator sends {"revision":${revision},"kind":"confirm_difference","effect_digest":"${detail}","reason":"…"} to …/supports; then send this verdict again`,
      );
  }
}

/** Records what a second operator adds to another's verdict: that it may stand without a fence, or that the difference is as described. */
export async function supportVerdict(call: Call): Promise<Answer<SupportedVerdict>> {
  const { deps, who } = call;
  const id = runIdOf(call);
  if (!id.ok) return id.refused;
  const { run_id } = id;
  const json = await readJsonBody(call.request);
  if (!json.ok) return refusedBy(json.refusal);
  const body = parseWith(SupportBody, json.value);
  if (!body.ok) return refusedBy(body.refusal);

  const { kind, revision, reason } = body.value;
  const effect_digest = body.value.kind === 'confirm_difference' ? body.value.effect_digest : null;
  const result = await deps.store.support(who, { run_id, expected: revision, kind, effect_digest, reason });
  if (result === 'recorded') return answered({ run_id, result });
  return refused(result, result === 'stale_revision' ? '/revision' : '', { audited: result !== 'run_not_found' });
}
