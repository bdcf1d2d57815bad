import { canonicalJson, digestOf, factsDigest } from '@counterstamp/manifest-core';
import { type Envelope, type SigningKey, sealEnvelope } from '@counterstamp/signatures';
import { RECEIPT_PAYLOAD_TYPE } from '../src/predicate.ts';
import { makeReceipt, type ReceiptCheck } from '../src/receipt.ts';
import { clone, completedStory, KEYS, OTHER_RUN_ID, type Predicate, rehash, stoppedStory } from './receipt-story.ts';

/** A receipt with what a verifier must say of it. */
export interface Vector {
  /** Name of its file, without the ending. */
  name: string;
  about: string;
  /** Exactly these checks fail. */
  fails: readonly ReceiptCheck[];
  /** Exactly these have nothing to look at. */
  absent: readonly ReceiptCheck[];
  envelope: Envelope;
}

const UNDECIDED: readonly ReceiptCheck[] = [
  'action',
  'approval',
  'decisions',
  'decision_signatures',
  'approvals_sufficient',
  'attempts',
  'outcome',
];

/**
 * Valid receipts, and one per way of tampering. What lies below the envelope is tampered with before the trusted key signs, so that the inner
 * checks are what finds it.
 */
export async function makeVectors(): Promise<Vector[]> {
  const completed = await completedStory();
  const cut = await completedStory({ until: 'executing' });
  const uncertified = await completedStory({ certifier: KEYS.receipt });
  const vectors: Vector[] = [];
  const add = (
    name: string,
    about: string,
    predicate: Predicate,
    fails: readonly ReceiptCheck[] = [],
    absent: readonly ReceiptCheck[] = [],
    key: SigningKey = KEYS.receipt,
  ) => vectors.push({ name, about, fails, absent, envelope: makeReceipt(predicate, key) });
  /** The completed receipt with one thing done to it. */
  const tampered = (change: (predicate: Predicate) => void) => {
    const predicate = clone(completed);
    change(predicate);
    return predicate;
  };
  const tamper = (
    name: string,
    about: string,
    fails: readonly ReceiptCheck[],
    change: (predicate: Predicate) => void,
    absent: readonly ReceiptCheck[] = [],
  ) => add(name, about, tampered(change), fails, absent);

  add('completed', 'Two people approved by passkey, one attempt, the effect found as approved.', completed);
  add(
    'stopped-early',
    'Stopped before there was an action; no checkpoint yet.',
    stoppedStory(),
    [],
    [...UNDECIDED, 'checkpoint'],
  );
  add(
    'evidence-erased',
    'The facts of the evidence were erased.',
    tampered((predicate) => {
      for (const item of predicate.evidence) item.facts = 'erased';
    }),
  );

  tamper('action-byte-changed', 'One digit of the action’s text is another.', ['action'], ({ action }) => {
    if (action !== null) action.canonical = action.canonical.replace('60000', '60001');
  });
  tamper(
    'action-digest-changed',
    'Another action with its own, right digest.',
    ['action', 'approval', 'attempts'],
    ({ action }) => {
      if (action === null) return;
      action.canonical = action.canonical.replace('60000', '60001');
      action.digest = digestOf('cs.action.v1', action.canonical);
    },
  );
  tamper(
    'approver-swapped',
    'A decision is said to be another person’s.',
    ['decisions', 'decision_signatures', 'approvals_sufficient'],
    ({ decisions: [first] }) => {
      if (first !== undefined) first.principal_id = 'prn_eve';
    },
  );
  tamper(
    'decision-removed',
    'One of the two decisions is missing.',
    ['decisions', 'approvals_sufficient'],
    ({ decisions }) => {
      decisions.pop();
    },
  );
  tamper(
    'decision-signature-swapped',
    'A decision carries the signature of the other.',
    ['decision_signatures', 'approvals_sufficient'],
    ({ decisions: [first, second] }) => {
      if (first?.signed && second?.signed) first.signed.signature = second.signed.signature;
    },
  );
  tamper(
    'decision-unsigned',
    'A decision is said to have needed no signature, where the approval request asks for one.',
    ['approvals_sufficient'],
    ({ decisions: [first] }) => {
      if (first !== undefined) Object.assign(first, { method: 'session', signed: null, certificate: null });
    },
    ['decision_signatures'],
  );
  add('passkey-uncertified', 'The passkeys are certified by a key that may not vouch for passkeys.', uncertified, [
    'decision_signatures',
    'approvals_sufficient',
  ]);
  tamper(
    'expiry-moved',
    'The approval request expires later, with its own, right digest.',
    ['approval', 'decisions', 'decision_signatures', 'approvals_sufficient'],
    ({ approval }) => {
      if (approval === null) return;
      approval.canonical = approval.canonical.replace('T00:15:00.000Z', 'T23:15:00.000Z');
      approval.approval_digest = digestOf('cs.approval.v1', approval.canonical);
    },
  );
  tamper(
    'display-changed',
    'The approvers are said to have been shown another amount.',
    ['approval'],
    ({ approval }) => {
      if (approval !== null) approval.display_canonical = approval.display_canonical.replace('600', '6');
    },
  );
  tamper('evidence-changed', 'Facts of the evidence are others.', ['evidence'], ({ evidence: [, order] }) => {
    if (typeof order?.facts === 'object') order.facts.canonical = order.facts.canonical.replace('60000', '90000');
  });
  tamper(
    'evidence-digest-changed',
    'Facts of the evidence are others, with their own, right digest.',
    ['evidence'],
    ({ evidence: [, order] }) => {
      if (typeof order?.facts !== 'object') return;
      order.facts.canonical = order.facts.canonical.replace('60000', '90000');
      order.facts_digest = factsDigest(order.facts.salt, order.facts.canonical);
    },
  );
  tamper('evidence-removed', 'One piece of evidence is missing.', ['evidence'], ({ evidence }) => {
    evidence.pop();
  });
  tamper('event-removed', 'An event from the middle is missing.', ['event_chain', 'legal_moves'], ({ events }) => {
    events.splice(2, 1);
  });
  tamper('event-reordered', 'Two events are in the other order.', ['event_chain', 'legal_moves'], ({ events }) => {
    events.splice(3, 0, ...events.splice(4, 1));
  });
  tamper('event-changed', 'An event was made by somebody else.', ['event_chain'], ({ events: [, , third] }) => {
    if (third !== undefined) third.actor = 'preflight/ins_other';
  });
  tamper('head-rewritten', 'The chain head is another hash.', ['event_chain'], (predicate) => {
    predicate.chain_head = predicate.events[0]?.hash ?? '';
  });
  tamper(
    'history-rewritten',
    'An event was made by somebody else, and every hash from there on computed again.',
    ['checkpoint'],
    (predicate) => {
      predicate.events = rehash(
        predicate.events.map((event) => (event.revision === 3 ? { ...event, actor: 'preflight/ins_other' } : event)),
      );
      predicate.chain_head = predicate.events.at(-1)?.hash ?? '';
    },
  );
  add(
    'tail-cut',
    'The last two events are cut off, and all else is as it was before them.',
    { ...cut, checkpoint: completed.checkpoint },
    ['checkpoint'],
    ['outcome'],
  );
  tamper('state-changed', 'The run is said to have failed.', ['run_state'], ({ run }) => {
    run.state = 'failed';
    run.stop_reason = { code: 'effect_rejected', message: 'The external system clearly refused the action.' };
  });
  tamper('requester-changed', 'Another person is said to have asked.', ['run_state'], ({ run }) => {
    run.requested_by = 'prn_eve';
  });
  tamper('attempt-key-changed', 'The attempt went out under another key.', ['attempts'], ({ attempts: [first] }) => {
    if (first !== undefined) first.idempotency_key = `cs-${'0'.repeat(64)}`;
  });
  tamper('attempt-removed', 'The attempt is missing.', ['attempts'], ({ attempts }) => {
    attempts.pop();
  });
  tamper('outcome-changed', 'The effect is said to be another one.', ['outcome'], ({ outcome }) => {
    if (outcome !== null) outcome.provider_ref = 'rf_10';
  });
  tamper('checkpoint-root-changed', 'The checkpoint has another root.', ['checkpoint'], ({ checkpoint }) => {
    if (checkpoint === null) return;
    const payload = Buffer.from(checkpoint.envelope.payload, 'base64').toString('utf8');
    const changed = payload.replace(/("root":"sha256:)[0-9a-f]{8}/, '$100000000');
    checkpoint.envelope.payload = Buffer.from(changed).toString('base64');
  });
  tamper('checkpoint-path-changed', 'The proof has another sibling.', ['checkpoint'], ({ checkpoint, chain_head }) => {
    checkpoint?.path.splice(0, 1, chain_head);
  });
  tamper('checkpoint-leaf-changed', 'The proof is of another run.', ['checkpoint'], ({ checkpoint }) => {
    if (checkpoint !== null) checkpoint.leaf.run_id = OTHER_RUN_ID;
  });

  add(
    'signed-by-stranger',
    'The receipt is signed by a key that nobody trusts.',
    completed,
    ['envelope_signature'],
    [],
    KEYS.stranger,
  );
  add(
    'signed-without-purpose',
    'The receipt is signed by a key that is trusted for checkpoints only.',
    completed,
    ['envelope_signature'],
    [],
    KEYS.checkpoint,
  );
  const sealed = makeReceipt(completed, KEYS.receipt);
  const statement = Buffer.from(sealed.payload, 'base64').toString('utf8');
  vectors.push(
    {
      name: 'payload-changed',
      about: 'A byte of the statement is another than was signed.',
      fails: ['envelope_signature'],
      absent: [],
      envelope: {
        ...sealed,
        payload: Buffer.from(statement.replace('"issued_at":"2026', '"issued_at":"2027')).toString('base64'),
      },
    },
    {
      name: 'subject-changed',
      about: 'The statement is about another run than its predicate.',
      fails: ['subject'],
      absent: [],
      envelope: resealed(statement, (text) => text.replace(/"name":"run_[^"]*"/, `"name":"${OTHER_RUN_ID}"`)),
    },
    {
      name: 'member-unknown',
      about: 'The statement has a member that nobody would verify.',
      fails: ['statement'],
      absent: [],
      envelope: resealed(statement, (text) => canonicalJson({ ...JSON.parse(text), note: 'trust me' })),
    },
  );
  return vectors;
}

function resealed(statement: string, change: (text: string) => string): Envelope {
  return sealEnvelope(RECEIPT_PAYLOAD_TYPE, change(statement), KEYS.receipt);
}
