import {
  canonicalJson,
  digestOf,
  type HotRow,
  type JsonObject,
  type NewRun,
  type RunId,
  settleMs,
  stageOf,
  stopReason,
} from '@counterstamp/manifest-core';
import type { Principal } from '@counterstamp/manifest-store';
import { iso, type MemoryRun } from './memory-run.ts';
import { contractOf } from './ports.ts';
import type { BusinessCase, ProviderEffect } from './provider.ts';
import { VISIBILITY_MS, type World } from './world.ts';

const TENANT = 'shop_north';
const person = (name: string, role: Principal['role']): Principal => ({
  tenant_id: TENANT,
  principal_id: `prn_${name}`,
  role,
});
const AGENT = person('agent', 'requester');
const APPROVERS = [person('ada', 'approver'), person('bo', 'approver')] as const;
const [OLGA, OTTO] = [person('olga', 'operator'), person('otto', 'operator')] as const;

/** How often people look again at one run in doubt, and how many successors one request may get. */
const VERDICTS_MAX = 5;
const SUCCESSORS_MAX = 1;
const HINT_FAULTS = ['dropped', 'doubled'] as const;
const REFUND_OPERATIONS = ['read_request', 'read_order', 'read_payment', 'read_refund_status', 'refund_order'];
const CREDIT_OPERATIONS = ['read_request', 'read_customer_order', 'read_grant_status', 'grant_credit'];

/** Something that a person may do next; nothing of it happens by itself. */
export interface Deed {
  name: string;
  weight: number;
  /** Whether a quiet day has it as well. */
  calm: boolean;
  run: () => void;
}

/** Requester, approvers and operators, and the api behind their clicks. Each looks at one moment and acts at a later one. */
export class People {
  readonly #world: World;
  readonly #approvalLifeMs: number | null;
  readonly #opened = new Set<string>();
  readonly #verdicts = new Map<RunId, number>();
  readonly #succeeded = new Map<string, number>();
  #busyWithVerdict = 0;
  /** Nobody opens any form. */
  away = false;

  constructor(world: World, approvalLifeMs: number | null) {
    this.#world = world;
    this.#approvalLifeMs = approvalLifeMs;
    for (const who of [AGENT, ...APPROVERS, OLGA, OTTO]) world.store.addPrincipal(who);
  }

  request(about: BusinessCase, supersedes: RunId | null = null): RunId | undefined {
    const world = this.#world;
    const credit = world.provider.kind === 'eventual';
    const input: JsonObject = {
      order_id: about.order_id,
      requested_amount_minor: about.amount_minor,
      currency: 'USD',
      reason: 'item arrived damaged',
      ...(credit ? { memo: 'sorry' } : {}),
    };
    const input_canonical = canonicalJson(input);
    const contract = contractOf(world);
    const created: NewRun = {
      run_id: `run_${world.ids.uuid()}` as RunId,
      tenant_id: TENANT,
      principal_id: AGENT.principal_id,
      request_id: about.request_id,
      supersedes,
      workflow: credit ? 'credit' : 'refund',
      workflow_version: 1,
      connector: contract.name,
      connector_version: contract.version,
      proposer: 'rules',
      subject: about.request_id,
      input_canonical,
      body_digest: digestOf('cs.body.v1', input_canonical),
      allowed_operations: credit ? CREDIT_OPERATIONS : REFUND_OPERATIONS,
      context: [],
      proposal: null,
      run_life_ms: world.durations.run_life_ms,
      approval_life_ms: this.#approvalLifeMs,
      wake_in_ms: world.durations.stage_lease_ms,
      settle_ms: settleOf(world),
      on_behalf_of: null,
      open_runs_max: null,
      trace_context: null,
    };
    const outcome = world.store.createRun(created);
    if (outcome.kind !== 'created') return undefined;
    this.#hint(outcome.row);
    return created.run_id;
  }

  /** What the api does after each commit of its own: a hint, which may be lost. */
  #hint(row: HotRow | null): void {
    const stage = row === null ? null : stageOf(row);
    if (row === null || stage === null) return;
    const world = this.#world;
    world.scheduler.add({
      name: `api hints ${stage} ${world.nameOf(row.run_id)}`,
      faults: HINT_FAULTS,
      run: (mode) => {
        const hint = { run_id: row.run_id, revision: row.revision };
        if (mode === 'dropped') world.counts.hints_dropped += 1;
        else world.send(stage, hint);
        if (mode === 'doubled') {
          world.counts.hints_doubled += 1;
          world.send(stage, hint);
        }
      },
    });
  }

  deeds(): Deed[] {
    const deeds: Deed[] = [];
    if (this.away) return deeds;
    for (const run of this.#world.store.runs.values()) {
      if (run.state === 'awaiting_approval') this.#approvals(run, deeds);
      else if (run.state === 'needs_reconciliation') this.#verdictOn(run, deeds);
      else if (run.state === 'failed' || run.state === 'rejected' || run.state === 'expired')
        this.#successor(run, deeds);
    }
    return deeds;
  }

  #approvals(run: MemoryRun, deeds: Deed[]): void {
    const approval = run.approval_id === null ? undefined : run.approvals.get(run.approval_id);
    if (approval === undefined) return;
    const name = this.#world.nameOf(run.made.run_id);
    for (const who of APPROVERS.slice(0, approval.approvals_required)) {
      const form = `${who.principal_id}/${approval.approval_id}`;
      if (this.#opened.has(form)) continue;
      const said = who.principal_id.slice(4);
      deeds.push({
        name: `${said} opens ${name}`,
        weight: 5,
        calm: true,
        run: () => {
          this.#opened.add(form);
          const { approval_id, approval_digest, action_digest, action_revision } = approval;
          this.#world.scheduler.add({
            name: `${said} decides ${name}`,
            tookMs: 1,
            faults: ['rejects', 'closes-the-form'],
            run: (mode) => {
              if (mode === 'closes-the-form') return;
              const decision = {
                run_id: run.made.run_id,
                approval_id,
                decision_id: this.#world.ids.id('decision'),
                decision: mode === 'rejects' ? ('reject' as const) : ('approve' as const),
                method: 'dev_key' as const,
                approval_digest,
                action_digest,
                action_revision,
                reason: null,
                break_glass: false,
                assertion: null,
              };
              this.#hint(this.#world.store.decide(who, decision, this.#world.durations.stage_lease_ms).row);
            },
          });
        },
      });
    }
    if (run.proposal_cycles + 1 < 3)
      deeds.push({ name: `agent proposes anew for ${name}`, weight: 0.06, calm: false, run: () => this.amend(run) });
    deeds.push({
      name: `agent cancels ${name}`,
      weight: 0.015,
      calm: false,
      run: () => {
        const { made, revision, state } = run;
        const commit = {
          run_id: made.run_id,
          expected: revision,
          from: state,
          on: 'cancelled',
          to: 'rejected',
        } as const;
        this.#world.store.commitStage(
          { service: 'api', who: AGENT },
          { ...commit, facts: { stop_reason: stopReason('cancelled') }, wake_in_ms: null },
        );
      },
    });
  }

  /** Another proposal in place of the one that awaits approval: a smaller amount. */
  amend(run: MemoryRun): void {
    const { made } = run;
    const amount = Number(run.input.requested_amount_minor) - 1 - run.proposal_cycles;
    const credit = made.workflow === 'credit';
    const body: JsonObject = credit
      ? { operation: 'grant_credit', amount_minor: amount, currency: 'USD', reason: 'goodwill' }
      : {
          operation: 'refund_order',
          order_id: run.input.order_id ?? null,
          amount_minor: amount,
          currency: 'USD',
          reason: 'damaged_item',
        };
    const body_canonical = canonicalJson(body);
    const outcome = this.#world.store.commitStage(
      { service: 'api', who: AGENT },
      {
        run_id: made.run_id,
        expected: run.revision,
        from: run.state,
        on: 'proposal_superseded',
        to: 'collecting',
        facts: {
          proposal: {
            proposal_id: this.#world.ids.id('proposal'),
            author: AGENT.principal_id,
            author_kind: 'external',
            body_canonical,
            body_digest: digestOf('cs.proposal.v1', body_canonical),
          },
        },
        wake_in_ms: this.#world.durations.stage_lease_ms,
      },
    );
    if (outcome.kind === 'committed') this.#hint(outcome.row);
  }

  #verdictOn(run: MemoryRun, deeds: Deed[]): void {
    const { run_id } = run.made;
    const tries = this.#verdicts.get(run_id) ?? 0;
    if (tries >= VERDICTS_MAX || this.#busyWithVerdict > 0) return;
    deeds.push({
      name: `olga looks at ${this.#world.nameOf(run_id)}`,
      weight: run.parked_reason === null ? 1 : 3,
      calm: false,
      run: () => {
        this.#verdicts.set(run_id, tries + 1);
        this.#busyWithVerdict += 1;
        this.look(run);
      },
    });
  }

  /** An operator's look and verdict: the form's revision and time first, then the read of the target, then the click. */
  look(run: MemoryRun): void {
    const { scheduler, provider } = this.#world;
    const name = this.#world.nameOf(run.made.run_id);
    const form = { expected: run.revision, observedMs: scheduler.nowMs };
    scheduler.add({
      name: `olga reads the provider for ${name}`,
      run: () => {
        const ours = provider.effects.filter(
          (effect) => effect.run_id === run.made.run_id && effect.visibleMs <= scheduler.nowMs,
        );
        scheduler.add({
          name: `olga decides ${name}`,
          tookMs: 1,
          faults: ['still-unknown', 'look-again', 'waived', 'waived'],
          risk: 3,
          run: (mode) => {
            this.#busyWithVerdict = Math.max(0, this.#busyWithVerdict - 1);
            this.verdict(run, form, ours, mode);
          },
        });
      },
    });
  }

  verdict(
    run: MemoryRun,
    form: { expected: number; observedMs: number },
    ours: readonly ProviderEffect[],
    mode: string,
  ): void {
    const { store, scheduler, provider } = this.#world;
    const action = run.action_revision === null ? undefined : run.actions.get(run.action_revision);
    const standing = ours.filter((effect) => effect.status !== 'failed');
    const [effect] = standing;
    const equal = effect !== undefined && standing.length === 1 && effect.amount === action?.fields.amount_minor;
    // A slower provider makes absence worthless; nobody who knows that says "absent".
    const absent = provider.kind === 'slow' ? 'still_unknown' : 'did_not_land';
    const verdict =
      mode === 'still-unknown'
        ? 'still_unknown'
        : mode === 'look-again'
          ? 'look_again'
          : equal
            ? 'landed'
            : effect === undefined
              ? absent
              : 'landed_differently';
    const seen = effect === undefined ? null : { provider_ref: effect.ref, amount: effect.amount };
    const effect_digest = seen === null ? null : digestOf('cs.body.v1', canonicalJson(seen));
    const { run_id } = run.made;
    const support = { run_id, expected: form.expected, effect_digest, reason: 'simulated' };
    if (mode === 'waived' && verdict === 'did_not_land') store.support(OTTO, { ...support, kind: 'waive_fencing' });
    if (verdict === 'landed_differently') store.support(OTTO, { ...support, kind: 'confirm_difference' });
    const closing =
      verdict === 'did_not_land'
        ? 'person_absent'
        : verdict === 'landed_differently'
          ? 'settled_with_difference'
          : null;
    const outcome = store.verdict(OLGA, {
      run_id,
      expected: form.expected,
      verdict,
      evidence: 'simulated',
      observed_at: iso(this.#world.lacks('observed-at-before-read') ? scheduler.nowMs : form.observedMs),
      provider_ref: effect?.ref ?? null,
      effect: seen,
      effect_digest,
      settle_ms: settleOf(this.#world),
      pause_ms: this.#world.durations.pause_ms,
      stop_reason: closing === null ? null : stopReason(closing),
      wake_in_ms: this.#world.durations.stage_lease_ms,
    });
    this.#world.note(`· olga says ${verdict}: ${outcome.result}`);
    if (outcome.result === 'recorded') this.#hint(outcome.row);
  }

  #successor(run: MemoryRun, deeds: Deed[]): void {
    const { request_id, run_id } = run.made;
    if ((this.#succeeded.get(request_id) ?? 0) >= SUCCESSORS_MAX || run.stop_reason?.code === 'settled_with_difference')
      return;
    deeds.push({
      name: `agent asks for a successor of ${this.#world.nameOf(run_id)}`,
      weight: 0.5,
      calm: false,
      run: () => this.succeed(run),
    });
  }

  succeed(run: MemoryRun): RunId | undefined {
    const { request_id, run_id } = run.made;
    const about = this.#world.provider.cases.find((item) => item.request_id === request_id);
    const made = about === undefined ? undefined : this.request(about, run_id);
    if (made !== undefined) this.#succeeded.set(request_id, (this.#succeeded.get(request_id) ?? 0) + 1);
    return made;
  }
}

function settleOf({ durations, provider }: World): number {
  return settleMs(durations, provider.kind === 'eventual' ? VISIBILITY_MS : 0);
}
