import { PROFILES, type Profile, settleMs } from '@counterstamp/manifest-core';
import { type Environment, parseDurations, type ServiceConfig } from '@counterstamp/stage-runtime';
import { type Finding, failed, ok, warning } from './finding.ts';
import type { ExaminedService } from './subject.ts';

/** Whether each service would start with what it is given: every problem once, with the services that have it, and what is legal but unwise. Pure. */
export function configurationFindings({ services }: { services: readonly ExaminedService[] }): Finding[] {
  const havers = new Map<string, string[]>();
  const found: Finding[] = [];
  for (const { service, env, config } of services) {
    if (config.ok) found.push(startFinding(service, config.config));
    else {
      // The durations have a finding of their own.
      const ofDurations = durationsOf(env).faults;
      for (const fault of config.faults) {
        if (!ofDurations.includes(fault)) havers.set(fault, [...(havers.get(fault) ?? []), service]);
      }
    }
  }
  for (const [fault, whose] of havers) {
    found.push(
      failed(
        'configuration',
        `${fault} (${whose.length === services.length ? 'every service' : whose.join(', ')}).`,
        'Correct this variable where the service gets its environment; docs/reference/configuration.md names them all.',
      ),
    );
  }
  return found;
}

function startFinding(service: string, { profile, development, queue }: ServiceConfig): Finding {
  const check = `configuration of ${service}`;
  if (development && profile === 'production') {
    return warning(
      check,
      'COUNTERSTAMP_DEV=1 together with the production profile: whoever holds an approver’s key can approve.',
      'Remove COUNTERSTAMP_DEV unless this is a development machine.',
    );
  }
  return ok(check, `complete: profile ${profile}, queues in ${queue.backend === 'redis' ? 'Redis' : 'Postgres'}.`);
}

/** Whether the inequalities between the durations hold. Services that are configured alike share one finding. Pure. */
export function durationFindings({ services }: { services: readonly Pick<ExaminedService, 'env'>[] }): Finding[] {
  const check = 'durations';
  const seen = new Map<string, ReturnType<typeof durationsOf>>();
  for (const { env } of services) {
    const found = durationsOf(env);
    seen.set(JSON.stringify(found), found);
  }
  const faults = [...new Set([...seen.values()].flatMap((one) => one.faults))];
  if (faults.length > 0) {
    return faults.map((fault) =>
      failed(
        check,
        `${fault}.`,
        'Change one side of it: each duration is COUNTERSTAMP_<NAME>_MS, in milliseconds, the same for every service.',
      ),
    );
  }
  if (seen.size > 1) {
    return [
      failed(
        check,
        'The services do not have the same durations, so that one would conclude before another has ended.',
        'Give every service the same COUNTERSTAMP_PROFILE and COUNTERSTAMP_…_MS.',
      ),
    ];
  }
  return [...seen.values()].map(({ profile, durations }) => {
    const settle = settleMs(durations, 0);
    return ok(
      check,
      `every inequality holds: profile ${profile}, call deadline ${durations.call_deadline_ms} ms, absence counts ${settle} ms after it, approvals live ${durations.approval_life_ms} ms.`,
    );
  });
}

function durationsOf(env: Environment) {
  const profile = Object.keys(PROFILES).find((name) => name === env.COUNTERSTAMP_PROFILE) as Profile | undefined;
  return { profile: profile ?? 'production', ...parseDurations(env, profile ?? 'production') };
}
