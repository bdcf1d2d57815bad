import { sql } from 'drizzle-orm';
import {
  bigserial,
  boolean,
  check,
  customType,
  index,
  integer,
  jsonb,
  pgSchema,
  primaryKey,
  smallint,
  text,
  timestamp,
  unique,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';

const bytea = customType<{ data: Uint8Array }>({ dataType: () => 'bytea' });
/** UTC instants with microseconds, read as text: a JavaScript Date would cut them to milliseconds. */
const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 6, mode: 'string' });
const counter = (name: string) => smallint(name).notNull().default(0);

/** Everything of ours lives in one schema; functions, triggers and roles that Drizzle has no words for are in migrations/. */
export const cs = pgSchema('cs');

/** The hot row: narrow, rewritten by every commit. Facts that are written once live in the tables below. */
export const run = cs.table(
  'run',
  {
    run_id: uuid('run_id').primaryKey(),
    tenant_id: text('tenant_id').notNull(),
    request_id: text('request_id').notNull(),
    generation: integer('generation').notNull(),
    supersedes: uuid('supersedes'),
    workflow: text('workflow').notNull(),
    workflow_version: integer('workflow_version').notNull(),
    connector: text('connector').notNull(),
    connector_version: text('connector_version').notNull(),
    proposer: text('proposer').notNull(),
    requested_by: text('requested_by').notNull(),
    created_at: instant('created_at').notNull(),
    state: text('state').notNull(),
    state_since: instant('state_since').notNull(),
    committed_at: instant('committed_at').notNull(),
    revision: integer('revision').notNull(),
    action_revision: integer('action_revision'),
    read_failures: counter('read_failures'),
    proposal_cycles: counter('proposal_cycles'),
    verification_waits: counter('verification_waits'),
    look_ups: counter('look_ups'),
    attempts: counter('attempts'),
    not_sent_retries: counter('not_sent_retries'),
    retries_refused: counter('retries_refused'),
    evidence_round: counter('evidence_round'),
    evidence_complete: boolean('evidence_complete').notNull().default(false),
    decisions_sufficient: boolean('decisions_sufficient').notNull().default(false),
    retry_allowed: boolean('retry_allowed').notNull().default(false),
    run_deadline: instant('run_deadline').notNull(),
    approval_id: text('approval_id'),
    approval_expires_at: instant('approval_expires_at'),
    wake_at: instant('wake_at'),
    parked_reason: text('parked_reason'),
    stop_reason: jsonb('stop_reason'),
    resource_key: text('resource_key'),
    in_flight_key: text('in_flight_key'),
    chain_head: text('chain_head').notNull(),
    trace_context: text('trace_context'),
  },
  (t) => [
    unique('run_request_generation').on(t.tenant_id, t.request_id, t.generation),
    index('run_wake').on(t.wake_at).where(sql`wake_at is not null`),
    // What is open, for the census: nothing in it grows with the runs that are over.
    index('run_open')
      .on(t.state, t.state_since)
      .where(sql`state not in ('completed', 'rejected', 'expired', 'failed')`),
    index('run_in_line')
      .on(t.tenant_id, t.wake_at)
      .where(
        sql`wake_at is not null and state not in ('failed', 'completed') and (state <> 'awaiting_approval' or decisions_sufficient)`,
      ),
    index('run_tenant_state').on(t.tenant_id, t.state, t.run_id),
    uniqueIndex('run_in_flight').on(t.in_flight_key).where(sql`in_flight_key is not null`),
    index('run_resource_in_doubt').on(t.resource_key).where(sql`state in ('executing', 'needs_reconciliation')`),
    check('run_revision_positive', sql`revision >= 1`),
    check('run_supersedes_generation', sql`(generation = 1) = (supersedes is null)`),
    check(
      'run_state_known',
      sql`state in ('queued', 'preflight', 'collecting', 'proposed', 'awaiting_approval', 'executing', 'verifying', 'completed', 'rejected', 'expired', 'failed', 'needs_reconciliation')`,
    ),
    check(
      'run_due_or_parked',
      sql`state in ('completed', 'rejected', 'expired', 'failed') or wake_at is not null or parked_reason is not null`,
    ),
    check(
      'run_stop_reason_iff_stopped',
      sql`(stop_reason is not null) = (state in ('rejected', 'expired', 'failed', 'needs_reconciliation'))`,
    ),
    check('run_stop_reason_shape', sql`stop_reason is null or (stop_reason ? 'code' and stop_reason ? 'message')`),
    check('run_parked_only_in_doubt', sql`parked_reason is null or state = 'needs_reconciliation'`),
    check(
      'run_retry_only_in_doubt',
      sql`not retry_allowed or (state = 'needs_reconciliation' and parked_reason is null)`,
    ),
    check('run_executing_holds_resource', sql`state <> 'executing' or in_flight_key is not null`),
    check('run_in_flight_only_in_doubt', sql`in_flight_key is null or state in ('executing', 'needs_reconciliation')`),
    check(
      'run_action_before_approval',
      sql`state not in ('awaiting_approval', 'executing', 'verifying', 'completed', 'needs_reconciliation') or action_revision is not null`,
    ),
    check(
      'run_attempt_before_effect',
      sql`state not in ('executing', 'verifying', 'completed', 'needs_reconciliation') or attempts >= 1`,
    ),
    check('run_approval_within_run', sql`approval_expires_at is null or approval_expires_at <= run_deadline`),
  ],
);

/** What was asked: insert-only. `input_canonical` is the authority, `input` is for queries. */
export const runInput = cs.table(
  'run_input',
  {
    run_id: uuid('run_id')
      .primaryKey()
      .references(() => run.run_id),
    input_canonical: text('input_canonical'),
    input: jsonb('input'),
    body_digest: text('body_digest').notNull(),
    approval_life_ms: integer('approval_life_ms'),
    allowed_operations: text('allowed_operations').array().notNull(),
    context: jsonb('context'),
    /** The person for whom the requester acts: nobody in the request chain approves. */
    on_behalf_of: text('on_behalf_of'),
    /** Whose personal data the run holds; where it is sealed, then under this one's key. Null in runs older than this column. */
    subject: text('subject'),
    /** Input and context under the subject's data key; instead of the columns. */
    sealed: bytea('sealed'),
  },
  (t) => [
    index('run_input_subject').on(t.subject),
    check(
      'run_input_in_one_form',
      sql`(sealed is null) = (input_canonical is not null) and (sealed is null) = (input is not null) and (sealed is null) = (context is not null) and (sealed is null or subject is not null)`,
    ),
  ],
);

/** A recorded fact's provenance. The chain commits to `facts_digest`, which is salted; the values live in `evidence_value`. */
export const evidence = cs.table(
  'evidence',
  {
    evidence_id: text('evidence_id').primaryKey(),
    run_id: uuid('run_id')
      .notNull()
      .references(() => run.run_id),
    revision: integer('revision').notNull(),
    round: smallint('round').notNull(),
    kind: text('kind').notNull(),
    source_ref: text('source_ref').notNull(),
    observed_at: instant('observed_at').notNull(),
    version_marker: text('version_marker'),
    trusted: boolean('trusted').notNull(),
    facts_digest: text('facts_digest').notNull(),
    attempt_id: text('attempt_id'),
  },
  (t) => [
    index('evidence_run').on(t.run_id),
    uniqueIndex('evidence_once_per_attempt').on(t.attempt_id, t.kind).where(sql`attempt_id is not null`),
  ],
);

/** Values that may be personal: the one table whose rows may be deleted. */
export const evidenceValue = cs.table(
  'evidence_value',
  {
    evidence_id: text('evidence_id')
      .primaryKey()
      .references(() => evidence.evidence_id),
    salt: text('salt'),
    facts_canonical: text('facts_canonical'),
    /** Salt and facts under the subject's data key; instead of the two columns. */
    sealed: bytea('sealed'),
  },
  () => [
    check(
      'evidence_value_in_one_form',
      sql`(sealed is null) = (salt is not null) and (sealed is null) = (facts_canonical is not null)`,
    ),
  ],
);

export const proposal = cs.table(
  'proposal',
  {
    proposal_id: text('proposal_id').primaryKey(),
    run_id: uuid('run_id')
      .notNull()
      .references(() => run.run_id),
    revision: integer('revision').notNull(),
    author: text('author').notNull(),
    author_kind: text('author_kind').notNull(),
    body_canonical: text('body_canonical'),
    /** The body under the subject's data key; instead of the text. */
    sealed: bytea('sealed'),
    body_digest: text('body_digest').notNull(),
  },
  (t) => [
    index('proposal_run').on(t.run_id),
    check('proposal_in_one_form', sql`(sealed is null) = (body_canonical is not null)`),
    check('proposal_author_kind', sql`author_kind in ('rules', 'model', 'external')`),
  ],
);

export const proposalRefusal = cs.table('proposal_refusal', {
  proposal_id: text('proposal_id')
    .primaryKey()
    .references(() => proposal.proposal_id),
  run_id: uuid('run_id').notNull(),
  revision: integer('revision').notNull(),
  code: text('code').notNull(),
  message: text('message').notNull(),
});

/** The exact payload. `action_canonical` is what is digested, shown, sent and compared; `action` is for queries, checked equal on insert. */
export const action = cs.table(
  'action',
  {
    run_id: uuid('run_id')
      .notNull()
      .references(() => run.run_id),
    action_revision: integer('action_revision').notNull(),
    action_canonical: text('action_canonical').notNull(),
    action: jsonb('action').notNull(),
    action_digest: text('action_digest').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.run_id, t.action_revision] }),
    check('action_json_is_canonical', sql`action = action_canonical::jsonb`),
    check(
      'action_digest_is_of_bytes',
      sql`action_digest = 'sha256:' || encode(sha256('cs.action.v1'::bytea || '\\x00'::bytea || convert_to(action_canonical, 'UTF8')), 'hex')`,
    ),
  ],
);

/** What was asked of the approvers: frozen. `approval_digest` over `canonical` is what is decided. */
export const approvalRequest = cs.table(
  'approval_request',
  {
    approval_id: text('approval_id').primaryKey(),
    run_id: uuid('run_id')
      .notNull()
      .references(() => run.run_id),
    action_revision: integer('action_revision').notNull(),
    action_digest: text('action_digest').notNull(),
    canonical: text('canonical').notNull(),
    approval_digest: text('approval_digest').notNull(),
    display: jsonb('display').notNull(),
    policy: text('policy').notNull(),
    policy_version: integer('policy_version').notNull(),
    policy_rule: text('policy_rule').notNull(),
    approvals_required: smallint('approvals_required').notNull(),
    /** Members that approve at least, per group. */
    groups_required: jsonb('groups_required').notNull().default({}),
    /** The weakest way of deciding that counts. */
    method: text('method').notNull().default('session'),
    /** Whether two signed decisions of break-glass holders may stand in for the rule. */
    break_glass: boolean('break_glass').notNull().default(false),
    expires_at: instant('expires_at').notNull(),
    nonce: text('nonce').notNull(),
  },
  (t) => [
    unique('approval_request_action').on(t.run_id, t.action_revision),
    check('approval_request_asks_somebody', sql`approvals_required >= 1`),
    check('approval_request_method_known', sql`method in ('session', 'passkey')`),
    check(
      'approval_request_digest_is_of_bytes',
      sql`approval_digest = 'sha256:' || encode(sha256('cs.approval.v1'::bytea || '\\x00'::bytea || convert_to(canonical, 'UTF8')), 'hex')`,
    ),
  ],
);

export const decision = cs.table(
  'decision',
  {
    decision_id: text('decision_id').primaryKey(),
    approval_id: text('approval_id')
      .notNull()
      .references(() => approvalRequest.approval_id),
    run_id: uuid('run_id').notNull(),
    revision: integer('revision').notNull(),
    decision: text('decision').notNull(),
    principal_id: text('principal_id').notNull(),
    method: text('method').notNull(),
    action_digest: text('action_digest').notNull(),
    action_revision: integer('action_revision').notNull(),
    approval_digest: text('approval_digest').notNull(),
    decided_at: instant('decided_at').notNull(),
    reason: text('reason'),
    break_glass: boolean('break_glass').notNull().default(false),
  },
  (t) => [
    // A person decides again where the decision before does not count any more; the function that records them says when.
    unique('decision_once_per_revision').on(t.run_id, t.revision),
    index('decision_approval').on(t.approval_id),
    check('decision_known', sql`decision in ('approve', 'reject')`),
    check('decision_method_known', sql`method in ('dev_key', 'session', 'passkey')`),
    check(
      'decision_break_glass_is_signed_and_told',
      sql`not break_glass or (decision = 'approve' and method = 'passkey' and reason is not null)`,
    ),
  ],
);

/** What a person's authenticator signed for a decision: bytes as they came, for everybody who verifies them again. Insert-only. */
export const decisionAssertion = cs.table('decision_assertion', {
  decision_id: text('decision_id')
    .primaryKey()
    .references(() => decision.decision_id),
  credential_id: text('credential_id').notNull(),
  /** Canonical text whose SHA-256 is the challenge. */
  pre_image: text('pre_image').notNull(),
  client_data_json: bytea('client_data_json').notNull(),
  authenticator_data: bytea('authenticator_data').notNull(),
  signature: bytea('signature').notNull(),
});

/** Written in the transaction that dispatches, before any byte leaves; closed once. */
export const attempt = cs.table(
  'attempt',
  {
    attempt_id: text('attempt_id').primaryKey(),
    run_id: uuid('run_id')
      .notNull()
      .references(() => run.run_id),
    n: smallint('n').notNull(),
    revision: integer('revision').notNull(),
    action_digest: text('action_digest').notNull(),
    request_bytes: bytea('request_bytes').notNull(),
    request_digest: text('request_digest').notNull(),
    idempotency_key: text('idempotency_key').notNull(),
    instance_id: text('instance_id').notNull(),
    started_at: instant('started_at').notNull(),
    call_deadline: instant('call_deadline').notNull(),
    status: text('status').notNull().default('started'),
    provider_ref: text('provider_ref'),
    response: jsonb('response'),
    closed_at: instant('closed_at'),
  },
  (t) => [
    unique('attempt_n').on(t.run_id, t.n),
    index('attempt_open').on(t.instance_id).where(sql`status = 'started'`),
    check('attempt_status_known', sql`status in ('started', 'succeeded', 'rejected', 'not_sent', 'uncertain')`),
    check('attempt_closed_iff_ended', sql`(status = 'started') = (closed_at is null)`),
    check('attempt_deadline_after_start', sql`call_deadline > started_at`),
    check(
      'attempt_digest_is_of_bytes',
      sql`request_digest = 'sha256:' || encode(sha256('cs.request-bytes.v1'::bytea || '\\x00'::bytea || request_bytes), 'hex')`,
    ),
  ],
);

/** What an own read of the business record showed. */
export const observation = cs.table(
  'observation',
  {
    run_id: uuid('run_id')
      .notNull()
      .references(() => run.run_id),
    revision: integer('revision').notNull(),
    at: instant('at').notNull(),
    kind: text('kind').notNull(),
    provider_ref: text('provider_ref'),
    body: jsonb('body').notNull(),
  },
  (t) => [primaryKey({ columns: [t.run_id, t.revision] })],
);

/** The history: one event per revision, chained by hash, append-only. */
export const runEvent = cs.table(
  'run_event',
  {
    run_id: uuid('run_id')
      .notNull()
      .references(() => run.run_id),
    revision: integer('revision').notNull(),
    from_state: text('from_state'),
    to_state: text('to_state').notNull(),
    trigger: text('trigger').notNull(),
    actor: text('actor').notNull(),
    at: instant('at').notNull(),
    payload: text('payload').notNull(),
    payload_digest: text('payload_digest').notNull(),
    previous_hash: text('previous_hash'),
    hash: text('hash').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.run_id, t.revision] }),
    // For checkpoints, which ask what came since the last one: rows are appended in the order of time.
    index('run_event_at').using('brin', t.at),
  ],
);

/** Refused tries and late clicks: what happened without changing a run. */
export const auditEvent = cs.table(
  'audit_event',
  {
    audit_id: bigserial('audit_id', { mode: 'number' }).primaryKey(),
    at: instant('at').notNull(),
    /** Who wrote it, by its login. */
    service: text('service').notNull(),
    tenant_id: text('tenant_id'),
    principal_id: text('principal_id'),
    run_id: uuid('run_id'),
    what: text('what').notNull(),
    code: text('code').notNull(),
    detail: jsonb('detail').notNull(),
  },
  (t) => [
    index('audit_event_run').on(t.run_id).where(sql`run_id is not null`),
    index('audit_event_tenant').on(t.tenant_id, t.audit_id),
    index('audit_event_alarm').on(t.tenant_id, t.audit_id).where(sql`what = 'alarm'`),
  ],
);

export const principal = cs.table(
  'principal',
  {
    principal_id: text('principal_id').primaryKey(),
    tenant_id: text('tenant_id').notNull(),
    name: text('name').notNull(),
    kind: text('kind').notNull(),
    /** What the principal may do; a key may carry one of these, a session carries all. */
    roles: text('roles').array().notNull().default([]),
    /** Groups that a policy may ask for, such as `finance`. */
    groups: text('groups').array().notNull().default([]),
    /** The person who answers for a service account. */
    owner_id: text('owner_id'),
    disabled_at: instant('disabled_at'),
  },
  (t) => [
    // Two spellings of one name are one principal: Ana@Example.TEST is ana@example.test.
    uniqueIndex('principal_name_once').on(t.tenant_id, sql`lower(${t.name})`),
    check('principal_kind_known', sql`kind in ('person', 'service_account')`),
    check(
      'principal_roles_known',
      sql`roles <@ array['requester', 'approver', 'operator', 'auditor', 'break_glass']::text[]`,
    ),
    check(
      'principal_service_account_never_decides',
      sql`kind = 'person' or not roles && array['approver', 'operator', 'break_glass']::text[]`,
    ),
  ],
);

/** A person's passkey. The certificate by the installation's key, which no database holds, is what makes it count. */
export const passkey = cs.table(
  'passkey',
  {
    /** base64url, as the authenticator gave it. */
    credential_id: text('credential_id').primaryKey(),
    tenant_id: text('tenant_id').notNull(),
    principal_id: text('principal_id')
      .notNull()
      .references(() => principal.principal_id),
    /** COSE, base64url. */
    public_key: text('public_key').notNull(),
    transports: text('transports').array().notNull(),
    name: text('name').notNull(),
    backed_up: boolean('backed_up').notNull(),
    /** DSSE envelope of the credential record. */
    certificate: jsonb('certificate').notNull(),
    created_at: instant('created_at').notNull(),
    last_used_at: instant('last_used_at'),
    revoked_at: instant('revoked_at'),
  },
  (t) => [index('passkey_principal').on(t.principal_id)],
);

/** A single-use way to enrol the first passkey. The token is never stored: `token_hash` is SHA-256 over 256 random bits. */
export const invitation = cs.table('invitation', {
  invitation_id: text('invitation_id').primaryKey(),
  tenant_id: text('tenant_id').notNull(),
  principal_id: text('principal_id')
    .notNull()
    .references(() => principal.principal_id),
  token_hash: text('token_hash').notNull().unique(),
  created_at: instant('created_at').notNull(),
  expires_at: instant('expires_at').notNull(),
  consumed_at: instant('consumed_at'),
});

/** What an authenticator was asked to sign. Single use: the row, not the authenticator's counter, is the guard against replay. */
export const challenge = cs.table(
  'challenge',
  {
    /** base64url of the 32 bytes. */
    challenge: text('challenge').primaryKey(),
    purpose: text('purpose').notNull(),
    /** Null for a sign-in: nobody is known yet. */
    principal_id: text('principal_id'),
    /** What it is bound to: for a decision the approval and the pre-image. */
    subject: jsonb('subject').notNull(),
    created_at: instant('created_at').notNull(),
    expires_at: instant('expires_at').notNull(),
    consumed_at: instant('consumed_at'),
  },
  (t) => [
    index('challenge_expiry').on(t.expires_at),
    check('challenge_purpose_known', sql`purpose in ('enrol', 'sign_in', 'step_up', 'decide')`),
  ],
);

/** A signed-in person. The cookie's secret is never stored: `secret_hash` is SHA-256 over 256 random bits. */
export const session = cs.table(
  'session',
  {
    session_id: text('session_id').primaryKey(),
    secret_hash: text('secret_hash').notNull().unique(),
    tenant_id: text('tenant_id').notNull(),
    principal_id: text('principal_id')
      .notNull()
      .references(() => principal.principal_id),
    method: text('method').notNull(),
    created_at: instant('created_at').notNull(),
    /** When the person last proved who they are; a step-up moves it. */
    authenticated_at: instant('authenticated_at').notNull(),
    last_seen_at: instant('last_seen_at').notNull(),
    expires_at: instant('expires_at').notNull(),
    revoked_at: instant('revoked_at'),
  },
  (t) => [
    index('session_principal').on(t.principal_id),
    check('session_method_known', sql`method in ('passkey', 'oidc')`),
  ],
);

/** Who a person is at an identity provider. */
export const principalIdentity = cs.table(
  'principal_identity',
  {
    issuer: text('issuer').notNull(),
    subject: text('subject').notNull(),
    tenant_id: text('tenant_id').notNull(),
    principal_id: text('principal_id')
      .notNull()
      .references(() => principal.principal_id),
  },
  (t) => [primaryKey({ columns: [t.issuer, t.subject] })],
);

/** Every chain head that moved, committed to by a signed envelope at an interval; what an auditor keeps a copy of. Insert-only. */
export const checkpoint = cs.table('checkpoint', {
  seq: integer('seq').primaryKey(),
  at: instant('at').notNull(),
  /** Events up to here are covered; earlier than `at` where one checkpoint could not hold all that had moved. */
  covered_until: instant('covered_until').notNull(),
  /** DSSE envelope. */
  envelope: jsonb('envelope').notNull(),
});

/** The leaves of a checkpoint's tree, in order, so that the proof of one run can be made again. Insert-only. */
export const checkpointLeaf = cs.table(
  'checkpoint_leaf',
  {
    run_id: uuid('run_id').notNull(),
    seq: integer('seq')
      .notNull()
      .references(() => checkpoint.seq),
    leaf_index: integer('leaf_index').notNull(),
    revision: integer('revision').notNull(),
    chain_head: text('chain_head').notNull(),
  },
  (t) => [primaryKey({ columns: [t.run_id, t.seq] }), unique('checkpoint_leaf_order').on(t.seq, t.leaf_index)],
);

/** The data key of one person or case, wrapped by the installation's. Destroying it erases what it sealed, everywhere. */
export const subjectKey = cs.table(
  'subject_key',
  {
    tenant_id: text('tenant_id').notNull(),
    subject: text('subject').notNull(),
    /** AES-256-GCM of the data key; null once erased. */
    wrapped_key: bytea('wrapped_key'),
    created_at: instant('created_at').notNull(),
    erased_at: instant('erased_at'),
  },
  (t) => [
    primaryKey({ columns: [t.tenant_id, t.subject] }),
    check('subject_key_erased_has_none', sql`(erased_at is not null) = (wrapped_key is null)`),
  ],
);

/** The secret itself is never stored: `secret_hash` is SHA-256 over 256 random bits. */
export const apiKey = cs.table(
  'api_key',
  {
    key_id: text('key_id').primaryKey(),
    tenant_id: text('tenant_id').notNull(),
    principal_id: text('principal_id')
      .notNull()
      .references(() => principal.principal_id),
    role: text('role').notNull(),
    secret_hash: text('secret_hash').notNull(),
    created_at: instant('created_at').notNull(),
    expires_at: instant('expires_at'),
    revoked_at: instant('revoked_at'),
    /** To the minute: not every request rewrites it. */
    last_used_at: instant('last_used_at'),
  },
  () => [check('api_key_role_known', sql`role in ('requester', 'approver', 'operator', 'auditor')`)],
);

/** Every process life that serves a stage. Its end, once recorded, is final: the id never takes a lease again. */
export const executorInstance = cs.table(
  'executor_instance',
  {
    instance_id: text('instance_id').primaryKey(),
    service: text('service').notNull(),
    host: text('host'),
    pid: integer('pid'),
    started_at: instant('started_at').notNull(),
    beat_at: instant('beat_at').notNull(),
    /** When it first held its session lease: an advisory lock on a connection of its own. */
    lease_at: instant('lease_at'),
    /** Since when sweepers have seen the lease free; null while it is held. */
    lease_lost_at: instant('lease_lost_at'),
    ended_at: instant('ended_at'),
    ended_by: text('ended_by'),
    end_evidence: text('end_evidence'),
    /** The connector credential that it could send with is void: nothing of it can be applied any more. */
    credential_rotated: boolean('credential_rotated').notNull().default(false),
  },
  () => [
    check('executor_instance_ended_by_known', sql`ended_by in ('self', 'supervisor', 'operator')`),
    check('executor_instance_end_is_told', sql`(ended_at is null) = (ended_by is null)`),
  ],
);

/** What a second person takes on themselves for a verdict on a parked run: a missing fence, or an observed difference. Insert-only. */
export const verdictSupport = cs.table(
  'verdict_support',
  {
    run_id: uuid('run_id')
      .notNull()
      .references(() => run.run_id),
    principal_id: text('principal_id').notNull(),
    kind: text('kind').notNull(),
    /** How many attempts the run had: another attempt voids it. */
    attempts: smallint('attempts').notNull(),
    /** Digest of the observed effect that is confirmed; empty for a waiver. */
    subject_digest: text('subject_digest').notNull(),
    reason: text('reason').notNull(),
    at: instant('at').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.run_id, t.principal_id, t.kind, t.attempts, t.subject_digest] }),
    check('verdict_support_kind_known', sql`kind in ('waive_fencing', 'confirm_difference')`),
  ],
);

/** A switched hold stops dispatches: for everything (`*`) or for one connector. */
export const hold = cs.table('hold', {
  scope: text('scope').primaryKey(),
  reason: text('reason').notNull(),
  set_by: text('set_by').notNull(),
  set_at: instant('set_at').notNull(),
});

/** The legal moves as data; a test compares them with manifest-core's table. */
export const legalMove = cs.table(
  'legal_move',
  {
    from_state: text('from_state').notNull(),
    trigger: text('trigger').notNull(),
    to_state: text('to_state').notNull(),
    services: text('services').array().notNull(),
    facts: text('facts').array().notNull(),
    counts: text('counts'),
    /** Facts without which the move is refused. */
    requires: text('requires').array().notNull(),
    /** The status that the attempt closed by this move must get. */
    attempt_status: text('attempt_status'),
    /** What the observation that justifies this move must say. */
    observation_kind: text('observation_kind'),
  },
  (t) => [primaryKey({ columns: [t.from_state, t.trigger] })],
);

/** Which Postgres login is which service. Filled by `migrate` for the installation's role prefix. */
export const serviceLogin = cs.table('service_login', {
  login: text('login').primaryKey(),
  service: text('service').notNull(),
});
