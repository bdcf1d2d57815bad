import { createHash, createPrivateKey } from 'node:crypto';
import {
  canonicalJson,
  digestOf,
  eventHash,
  evidenceSetDigest,
  factsDigest,
  idempotencyKey,
  type JsonObject,
  sha256Text,
  transitionRule,
} from '@counterstamp/manifest-core';
import {
  certifyCredential,
  decisionChallengeText,
  decisionPreImage,
  type Envelope,
  parseSigningKey,
  parseTrustedKeys,
  publicJwk,
  reasonDigest,
  type SigningKey,
  trustedKeysText,
} from '@counterstamp/signatures';
import { createSoftwareAuthenticator } from '@counterstamp/signatures/software-authenticator';
import type { z } from 'zod';
import { CheckpointLeaf, makeCheckpoint, proofFor } from '../src/checkpoint.ts';
import { instantOfMicroseconds } from '../src/instant.ts';
import type { ReceiptPredicate } from '../src/predicate.ts';

export type Predicate = z.input<typeof ReceiptPredicate>;
type Event = Predicate['events'][number];
type State = Event['to'];

export const ORIGIN = 'https://console.example';
export const RUN_ID = 'run_0191c0de-0000-7000-8000-000000000001';
export const OTHER_RUN_ID = 'run_0191c0de-0000-7000-8000-000000000002';
const TENANT = 'acme';
const REQUESTER = 'prn_rita';
/** 2026-01-01T00:00:00Z in seconds since the epoch. */
const BEGIN_S = 1_767_225_600;

/** A key that everybody can make: its private part is the digest of its name. It protects nothing. */
function publishedKey(name: string): SigningKey {
  const seed = createHash('sha256').update(`counterstamp receipt vectors: ${name}`).digest();
  const pkcs8 = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed]);
  const jwk = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' }).export({ format: 'jwk' });
  return parseSigningKey(JSON.stringify(jwk));
}

export const KEYS = {
  receipt: publishedKey('receipt'),
  checkpoint: publishedKey('checkpoint'),
  credential: publishedKey('credential'),
  /** In nobody's set. */
  stranger: publishedKey('stranger'),
};
export const TRUSTED_TEXT = trustedKeysText([
  publicJwk(KEYS.receipt, ['receipt']),
  publicJwk(KEYS.checkpoint, ['checkpoint']),
  publicJwk(KEYS.credential, ['credential']),
]);
export const TRUSTED = parseTrustedKeys(TRUSTED_TEXT);

export function clone<T>(value: T): T {
  return structuredClone(value);
}

/** An instant of the story: seconds after its beginning. */
function at(seconds: number): string {
  return instantOfMicroseconds(`${BEGIN_S + seconds}000000`);
}

/** Hashes events anew, in their order, each over the one before. */
export function rehash(events: readonly Event[]): Event[] {
  const hashed: Event[] = [];
  for (const event of events) {
    const previous_hash = hashed.at(-1)?.hash ?? null;
    const payload_digest = sha256Text(event.payload);
    hashed.push({
      ...event,
      previous_hash,
      payload_digest,
      hash: eventHash({ ...event, previous_hash, payload_digest }),
    });
  }
  return hashed;
}

/** Writes a history as the store does: the legal move of each trigger, one second after the one before. */
function historian() {
  let events: Event[] = [];
  return {
    append(trigger: string, actor: string, set: JsonObject, refs: JsonObject): Event {
      const from = events.at(-1)?.to ?? null;
      const to: State | undefined = transitionRule(from, trigger)?.to;
      if (to === undefined) throw new RangeError(`${trigger} leads nowhere from ${from ?? 'nothing'}`);
      const revision = events.length + 1;
      events = rehash([
        ...events,
        {
          run_id: RUN_ID,
          revision,
          from,
          to,
          trigger,
          actor,
          at: at(revision),
          at_us: `${BEGIN_S + revision}000000`,
          payload: JSON.stringify({ set: { ...set, state: to }, refs }),
          payload_digest: '',
          previous_hash: null,
          hash: '',
        },
      ]);
      return events[revision - 1] as Event;
    },
    /** The revision that the next event will have. */
    next: () => events.length + 1,
    events: () => events,
  };
}

interface Person {
  principal_id: string;
  certificate: Envelope;
  credential_id: string;
  /** base64url of the authenticator's three. */
  sign(preImage: string): Promise<{ client_data_json: string; authenticator_data: string; signature: string }>;
}

async function enrol(principal_id: string, certifier: SigningKey): Promise<Person> {
  let drawn = 0;
  const authenticator = createSoftwareAuthenticator({
    origin: ORIGIN,
    random: (length) => createHash('sha256').update(`${principal_id} ${++drawn}`).digest().subarray(0, length),
  });
  const rpId = new URL(ORIGIN).hostname;
  const registered = await authenticator.register({
    rp: { id: rpId, name: 'Counterstamp' },
    user: { id: Buffer.from(principal_id).toString('base64url'), name: principal_id, displayName: principal_id },
    challenge: Buffer.alloc(32).toString('base64url'),
    pubKeyCredParams: [{ type: 'public-key', alg: -7 }],
  });
  const id = Buffer.from(registered.id, 'base64url');
  const attestation = Buffer.from(registered.response.attestationObject, 'base64url');
  // Authenticator data ends the attestation, and the COSE key, right after the credential's id, ends the authenticator data.
  const coseKey = attestation.subarray(attestation.indexOf(id) + id.length);
  return {
    principal_id,
    credential_id: registered.id,
    certificate: certifyCredential(
      {
        profile: 'cs.credential.v1',
        credential_id: registered.id,
        principal_id,
        tenant_id: TENANT,
        public_key: coseKey.toString('base64url'),
        rp_id: rpId,
        certified_at: at(-3_600),
      },
      certifier,
    ),
    async sign(preImage) {
      const challenge = decisionChallengeText(preImage);
      const { response } = await authenticator.authenticate({ challenge, rpId });
      return {
        client_data_json: response.clientDataJSON,
        authenticator_data: response.authenticatorData,
        signature: response.signature,
      };
    },
  };
}

const CREATED = {
  tenant_id: TENANT,
  request_id: 'refund-77',
  generation: 1,
  workflow: 'refund',
  workflow_version: 1,
  connector: 'sandbox',
  connector_version: '1',
  requested_by: REQUESTER,
};

function evidenceItem(n: number, round: number, facts: JsonObject): Predicate['evidence'][number] {
  const salt = createHash('sha256').update(`salt ${n}`).digest('hex').slice(0, 32);
  const canonical = canonicalJson(facts);
  return {
    evidence_id: `evd_${n}`,
    round,
    kind: n === 1 ? 'request' : 'order',
    source_ref: `shop/orders/1001#${n}`,
    observed_at: at(n),
    version_marker: `v${n}`,
    facts_digest: factsDigest(salt, canonical),
    facts: { salt, canonical },
  };
}

function evidenceRefs(items: Predicate['evidence']): JsonObject {
  return {
    evidence: items.map(({ evidence_id, source_ref, version_marker, facts_digest }) => ({
      evidence_id,
      source_ref,
      version_marker,
      facts_digest,
    })),
  };
}

/** A checkpoint over this run and two others, where this one stood at a revision. */
export function checkpointAt(events: readonly Event[], revision: number): NonNullable<Predicate['checkpoint']> {
  const chain_head = events.find((event) => event.revision === revision)?.hash;
  const leaves = [
    { run_id: OTHER_RUN_ID, revision: 4, chain_head: sha256Text('another history') },
    { run_id: RUN_ID, revision, chain_head },
    { run_id: 'run_0191c0de-0000-7000-8000-000000000003', revision: 9, chain_head: sha256Text('a third history') },
  ].map((leaf) => CheckpointLeaf.parse(leaf));
  const first = makeCheckpoint(null, [], at(0), KEYS.checkpoint);
  const envelope = makeCheckpoint(first, leaves, at(60), KEYS.checkpoint);
  const proof = proofFor(envelope, leaves, RUN_ID);
  if (proof === undefined) throw new RangeError('the run is not in its own checkpoint');
  return proof;
}

export interface StoryOptions {
  /** The weakest way of deciding that the approval request counts. */
  method?: 'session' | 'passkey';
  /** How each of the two people decides. */
  decidedBy?: 'dev_key' | 'session' | 'passkey';
  /** Both break the glass of a rule that asks for three people. */
  breakGlass?: boolean;
  /** One of the two is the requester. */
  selfApproval?: boolean;
  /** Who certifies the passkeys. */
  certifier?: SigningKey;
  /** How far the history goes; the rest has not happened yet. */
  until?: 'awaiting_approval' | 'executing' | 'completed';
}

/** A refund that two people approved with passkeys, that was sent once and found at the provider as approved. */
export async function completedStory(options: StoryOptions = {}): Promise<Predicate> {
  const { method = 'passkey', decidedBy = 'passkey', breakGlass = false, until = 'completed' } = options;
  const history = historian();
  const { append } = history;
  const asked = evidenceItem(1, 1, { requested_by_customer: true });
  const order = evidenceItem(2, 2, { order_id: '1001', paid_minor: 60_000, currency: 'EUR', customer: 'Jo Doe' });
  append('request_accepted', `principal/${REQUESTER}`, CREATED, { on_behalf_of: null });
  append('request_loaded', 'preflight/ins_p', {}, evidenceRefs([asked]));
  append('checks_passed', 'preflight/ins_p', {}, {});
  append('evidence_recorded', 'preflight/ins_p', { evidence_complete: true }, evidenceRefs([order]));
  append('proposal_received', 'preflight/ins_p', {}, {});

  const action_revision = history.next();
  const actionText = canonicalJson({
    operation: 'refund_order',
    order_id: '1001',
    amount_minor: 60_000,
    currency: 'EUR',
    destination: 'pay_1',
  });
  const action_digest = digestOf('cs.action.v1', actionText);
  const display_canonical = canonicalJson([{ field: 'amount_minor', label: 'Amount', value: 'EUR 600.00' }]);
  const canonical = canonicalJson({
    profile: 'cs.approval.v1',
    approval_id: 'apr_1',
    run_id: RUN_ID,
    tenant_id: TENANT,
    action_digest,
    action_revision,
    evidence_set_digest: evidenceSetDigest([order]),
    display_digest: digestOf('cs.display.v1', display_canonical),
    policy: 'refund',
    policy_version: 2,
    policy_rule: 'two_people_above_50000',
    approvals_required: breakGlass ? 3 : 2,
    groups_required: { finance: 1 },
    method,
    break_glass: breakGlass,
    workflow: CREATED.workflow,
    workflow_version: CREATED.workflow_version,
    connector: CREATED.connector,
    connector_version: CREATED.connector_version,
    expires_at: at(900).replace('000Z', 'Z'),
    nonce: 'bm9uY2Utb2YtYXByXzEtYQ',
  });
  const approval_digest = digestOf('cs.approval.v1', canonical);
  append('action_fixed', 'preflight/ins_p', { action_revision }, { action_digest, approval_digest });

  const people = [
    await enrol('prn_ana', options.certifier ?? KEYS.credential),
    await enrol(options.selfApproval === true ? REQUESTER : 'prn_ben', options.certifier ?? KEYS.credential),
  ];
  const decisions: Predicate['decisions'] = [];
  if (until !== 'awaiting_approval')
    for (const [index, person] of people.entries()) {
      const revision = history.next();
      const decision_id = `dec_${index + 1}`;
      const reason = breakGlass ? 'The provider closes its books in ten minutes.' : null;
      const pre_image = decisionPreImage({
        profile: 'cs.decision.v1',
        approval_id: 'apr_1',
        decision: breakGlass ? 'break_glass' : 'approve',
        approver: person.principal_id,
        credential: person.credential_id,
        approval_digest,
        nonce: createHash('sha256').update(decision_id).digest().subarray(0, 16).toString('base64url'),
        issued_at: at(revision - 1),
        expires_at: at(revision + 120),
        reason_digest: reason === null ? null : reasonDigest(reason),
      });
      const event = append(
        'decision_recorded',
        `principal/${person.principal_id}`,
        { decisions_sufficient: index === 1 },
        { decision_id, approval_digest, ...(breakGlass ? { break_glass: true } : {}) },
      );
      decisions.push({
        decision_id,
        decision: 'approve',
        break_glass: breakGlass,
        principal_id: person.principal_id,
        method: decidedBy,
        decided_at: event.at,
        revision,
        reason: reason === null ? null : { text: reason },
        signed:
          decidedBy === 'passkey'
            ? { credential_id: person.credential_id, pre_image, ...(await person.sign(pre_image)) }
            : null,
        certificate: decidedBy === 'passkey' ? person.certificate : null,
      });
    }

  const attempts: Predicate['attempts'] = [];
  let outcome: Predicate['outcome'] = null;
  if (until === 'executing' || until === 'completed') {
    const sent = {
      attempt_id: 'att_1',
      action_digest,
      request_digest: digestOf('cs.request-bytes.v1', 'the bytes that were sent'),
      idempotency_key: idempotencyKey(RUN_ID, action_revision, action_digest),
      call_deadline: at(40),
    };
    const dispatched = append('dispatched', 'executor/ins_e', {}, sent);
    const closed = { status: 'succeeded' as const, provider_ref: 'rf_9' };
    const accepted =
      until === 'completed'
        ? append('effect_accepted', 'executor/ins_e', {}, { attempt: { attempt_id: 'att_1', ...closed } })
        : undefined;
    attempts.push({
      ...sent,
      n: 1,
      started_at: dispatched.at,
      ...(accepted === undefined ? { status: 'started', provider_ref: null } : closed),
      closed_at: accepted?.at ?? null,
    });
  }
  if (until === 'completed') {
    const seen = { kind: 'matched' as const, provider_ref: 'rf_9', body: { amount_minor: 60_000, currency: 'EUR' } };
    const verified = append('effect_verified', 'verifier/ins_v', {}, { observation: seen });
    outcome = { ...seen, revision: verified.revision, at: verified.at };
  }
  return predicateOf(history.events(), {
    action: { canonical: actionText, digest: action_digest, action_revision },
    evidence: [asked, order],
    approval: { canonical, approval_digest, display_canonical },
    decisions,
    attempts,
    outcome,
  });
}

/** A request that was refused before there was an action. No checkpoint has been made since. */
export function stoppedStory(): Predicate {
  const history = historian();
  const asked = evidenceItem(1, 1, { requested_by_customer: true });
  const stop_reason = {
    code: 'scope_mismatch',
    message: 'The request or its order does not belong to this tenant.',
  };
  history.append('request_accepted', `principal/${REQUESTER}`, CREATED, { on_behalf_of: null });
  history.append('request_loaded', 'preflight/ins_p', {}, evidenceRefs([asked]));
  history.append('checks_failed', 'preflight/ins_p', { stop_reason }, {});
  const stopped = predicateOf(history.events(), {
    action: null,
    evidence: [asked],
    approval: null,
    decisions: [],
    attempts: [],
    outcome: null,
  });
  return { ...stopped, run: { ...stopped.run, stop_reason }, checkpoint: null };
}

type Records = Pick<Predicate, 'action' | 'evidence' | 'approval' | 'decisions' | 'attempts' | 'outcome'>;

function predicateOf(events: Event[], records: Records): Predicate {
  const last = events.at(-1) as Event;
  return {
    issued_at: at(120),
    run: {
      run_id: RUN_ID,
      ...CREATED,
      on_behalf_of: null,
      state: last.to,
      revision: last.revision,
      created_at: at(1),
      stop_reason: null,
      parked_reason: null,
    },
    ...records,
    events,
    chain_head: last.hash,
    checkpoint: checkpointAt(events, last.revision),
  };
}
