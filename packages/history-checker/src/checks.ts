/** One check of the protocol's history checker. */
interface Check {
  readonly rule: string;
  /** How much of it needs the providers' ledger. */
  readonly ledger: 'none' | 'part' | 'whole';
  /** What it can have against a history: stable names, and what they mean. docs/reference/history-checks.md is rendered from here. */
  readonly codes: Readonly<Record<string, string>>;
}

/** H1 to H12 (protocol.md section 5). A code never changes its meaning. */
export const CHECKS = {
  H1: {
    rule: 'Revisions are 1..n without a gap, and each event starts where the one before ended.',
    ledger: 'none',
    codes: {
      no_events: 'the run has a row and no event',
      revision_gap: 'a revision is missing, or there twice',
      from_differs: 'an event does not start from the state that the one before led to',
      row_behind: 'the row is not at the revision and state of the last event',
    },
  },
  H2: {
    rule: 'Every move is legal, and was made by a service that may make it.',
    ledger: 'none',
    codes: {
      illegal_move: 'the move is not in the table of legal moves',
      wrong_actor: 'the actor may not make this move',
    },
  },
  H3: {
    rule: 'There is at most one effect per key, per approved action and per request.',
    ledger: 'whole',
    codes: {
      key_twice: 'one idempotency key had several effects: the provider booked twice, or forgot the key',
      action_twice: 'one approved action had several effects, under several keys or without one',
      request_twice: 'effects of several generations of one request stand',
    },
  },
  H4: {
    rule: 'Every request has an attempt that started before it, and arrived within Z + P of its call deadline.',
    ledger: 'whole',
    codes: {
      no_attempt: 'a request arrived that no attempt can have sent',
      late_send:
        'an alarm: the sender paused for longer than the protocol assumes, so no conclusion of absence was safe',
    },
  },
  H5: {
    rule: 'The bytes that arrived are those that were stored with the attempt, and their action is the approved one.',
    ledger: 'part',
    codes: {
      action_differs: 'stored action, attempt and approval do not name the same action',
      bytes_differ: 'attempts of one action have different bytes',
      key_differs: 'an attempt or a request has another key than the one derived from its action',
      body_differs: 'a body arrived that no attempt of the run stored',
    },
  },
  H6: {
    rule: 'At every dispatch stood a sufficient, unexpired approval.',
    ledger: 'none',
    codes: {
      no_approval: 'nothing was asked before the attempt',
      approval_changed: 'the approval request is not what its digest covers',
      approval_expired: 'the attempt started after the expiry, or may call beyond it',
      rejected: 'somebody had rejected',
      decisions_insufficient: 'too few people had approved exactly this action, before the attempt',
    },
  },
  H7: {
    rule: 'Each attempt has at most one request.',
    ledger: 'whole',
    codes: { sent_twice: 'more requests arrived than attempts may have sent' },
  },
  H8: {
    rule: 'A run is completed by an own matching read after an attempt, and a final equal effect stands behind it.',
    ledger: 'part',
    codes: {
      not_observed: 'the run was completed without a matching read',
      observed_too_early: 'the read was before any attempt, or before the request that made the effect',
      no_effect: 'the provider has no effect of the run',
      effect_differs: 'the effect is not final, or not as approved',
      effect_undone: 'the effect was undone since, and nobody will look again',
      other_effect_observed: 'the read saw another effect than the one that stands',
    },
  },
  H9: {
    rule: 'Behind a rejected, expired or failed run stands no effect, or the run records it.',
    ledger: 'part',
    codes: {
      attempt_behind: 'a rejected or expired run had an attempt',
      evidence_behind: 'the provider had said that the effect happened, and the run was not reopened',
      effect_behind: 'an effect of the run stands',
      unrecorded_effect: 'another effect stands than the one that a person settled',
      rejection_not_alone: 'a rejection failed the run while another attempt may have had its effect',
    },
  },
  H10: {
    rule: 'After positive evidence nothing is sent again, and nobody concludes that there is no effect.',
    ledger: 'none',
    codes: {
      retry_after_evidence: 'a retry was recorded or sent although the provider had said that it was applied',
      absent_after_evidence:
        'the run was closed as without an effect although the provider had said that it was applied',
    },
  },
  H11: {
    rule: 'Every run that is not closed is due, or parked with a reason.',
    ledger: 'none',
    codes: {
      stuck: 'the run is neither due nor parked',
      overdue: 'in a fleet that had time to heal, the run was due and nobody came',
    },
  },
  H12: {
    rule: 'The chain of events holds, and what stands beside it is what it recorded.',
    ledger: 'none',
    codes: {
      payload_changed: 'the payload of an event is not what was hashed',
      event_changed: 'an event is not what was hashed',
      link_broken: 'an event does not name the hash of the one before',
      head_differs: 'the row does not carry the hash of the last event',
      record_differs: 'row, attempt, decision or observation is not what an event recorded',
    },
  },
} as const satisfies Record<string, Check>;

export type CheckId = keyof typeof CHECKS;

/** What a check can have against a history. */
export type CodeOf<Id extends CheckId> = Id extends CheckId
  ? Extract<keyof (typeof CHECKS)[Id]['codes'], string>
  : never;
export type Code = CodeOf<CheckId>;

/** One thing that a check has against a history. */
export interface Finding<Id extends CheckId> {
  code: CodeOf<Id>;
  /** For people. */
  message: string;
}
