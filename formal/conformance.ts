import {
  type AttemptFact,
  type DispatchRefusal,
  mayRetry,
  type State,
  type Trigger,
} from '@counterstamp/manifest-core';
import type { Judgement } from './guards.ts';

/*
 * What the model asked the product's guards, as questions that the database can be asked as well: facts reduced to the side of each boundary
 * on which they lie. The database's test plants each question's facts right at that boundary.
 */

export interface AttemptClass {
  status: AttemptFact['status'];
  /** An answer “retry_safe”, and whether its wait is over. */
  retrySafe?: 'waits' | 'ready';
}

export interface RetryClass {
  attempts: AttemptClass[];
  evidence: boolean;
  refusedBefore: boolean;
  expired: boolean;
  notSentRetriesLeft: boolean;
  key: 'none' | 'known' | 'forgotten';
}

export type Question =
  | {
      ask: 'dispatch';
      digestMatches: boolean;
      expired: boolean;
      otherGeneration: boolean;
      onHold: boolean;
      resourceBusy: boolean;
      /** `null`: the first dispatch. */
      retry: RetryClass | null;
      answer: DispatchRefusal | null;
    }
  /** Which of `retry_recorded`, `resend_recorded` and `never_sent` are allowed, and why no retry is. */
  | { ask: 'retry'; retry: RetryClass; settled: boolean; answer: ReturnType<typeof mayRetry> }
  | {
      ask: 'absent';
      attempts: AttemptClass[];
      settled: boolean;
      evidence: boolean;
      fenced: boolean;
      /** The read began after the instances' end had settled. */
      covered: boolean;
      waived: boolean;
      answer: 'not_settled' | 'evidence_stands' | 'instance_not_fenced' | null;
    }
  | { ask: 'overdue'; graceOver: boolean; leaseLost: boolean; answer: boolean }
  | { ask: 'rejection'; others: AttemptClass[]; answer: boolean }
  | { ask: 'evidence'; state: State; parked: boolean; recordsEffect: boolean; answer: boolean }
  | { ask: 'move'; from: State; on: Trigger; answer: true };

/** Collects each different question once. */
export class Questions {
  readonly #seen = new Map<string, Question>();

  readonly add = (judgement: Judgement): void => {
    const question = questionOf(judgement);
    const name = JSON.stringify(question);
    if (!this.#seen.has(name)) this.#seen.set(name, question);
  };

  /** In an order that does not depend on the search. */
  get all(): Question[] {
    return [...this.#seen].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, question]) => question);
  }
}

type RetryFacts = Parameters<typeof mayRetry>[0];

function questionOf(judgement: Judgement): Question {
  switch (judgement.guard) {
    case 'dispatch': {
      const { facts, retry, verdict } = judgement;
      return {
        ask: 'dispatch',
        digestMatches: facts.digest_matches,
        expired: facts.until_expiry <= 0,
        otherGeneration: facts.other_generation_open,
        onHold: facts.on_hold,
        resourceBusy: facts.resource_busy,
        // A retry that is recorded was counted when it was.
        retry: retry === null ? null : { ...retryClass(retry), notSentRetriesLeft: true },
        answer: verdict,
      };
    }
    case 'look': {
      // What a look that found nothing would lead to: asked of every row that was looked at, whatever was seen.
      const { absence } = judgement.facts;
      const settled = absence !== null && absence.since_deadline >= absence.settle;
      return { ask: 'retry', retry: retryClass(judgement.facts), settled, answer: mayRetry(judgement.facts) };
    }
    case 'absent': {
      const { facts, covered, attempts, verdict } = judgement;
      return {
        ask: 'absent',
        attempts: attempts.map(attemptClass),
        settled: facts.absence.since_deadline >= facts.absence.settle,
        evidence: facts.evidence_of_effect,
        fenced: facts.instances_fenced && !facts.fencing_waived,
        covered,
        waived: facts.fencing_waived,
        answer: verdict,
      };
    }
    case 'overdue': {
      const { since_deadline, grace, lease_lost } = judgement.facts;
      return { ask: 'overdue', graceOver: since_deadline >= grace, leaseLost: lease_lost, answer: judgement.verdict };
    }
    case 'rejection':
      return { ask: 'rejection', others: judgement.others.map(attemptClass), answer: judgement.verdict };
    case 'evidence': {
      const { state, parked, recordsEffect, verdict } = judgement;
      return { ask: 'evidence', state, parked, recordsEffect, answer: verdict };
    }
    case 'move':
      return { ask: 'move', from: judgement.from, on: judgement.on, answer: true };
  }
}

function attemptClass(fact: AttemptFact): AttemptClass {
  if (fact.status !== 'uncertain' || fact.retry_safe_in === null) return { status: fact.status };
  return { status: fact.status, retrySafe: fact.retry_safe_in <= 0 ? 'ready' : 'waits' };
}

function retryClass(facts: RetryFacts): RetryClass {
  const known = facts.key !== null && facts.since_first_send + facts.reserve < facts.key.retention;
  return {
    attempts: facts.attempts.map(attemptClass),
    evidence: facts.evidence_of_effect,
    refusedBefore: facts.retries_refused > 0,
    expired: facts.until_expiry <= facts.expiry_margin,
    notSentRetriesLeft: facts.not_sent_retries < facts.not_sent_retries_max,
    key: facts.key === null ? 'none' : known ? 'known' : 'forgotten',
  };
}
