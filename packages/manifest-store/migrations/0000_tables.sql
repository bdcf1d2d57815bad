CREATE SCHEMA "cs";
--> statement-breakpoint
CREATE TABLE "cs"."action" (
	"run_id" uuid NOT NULL,
	"action_revision" integer NOT NULL,
	"action_canonical" text NOT NULL,
	"action" jsonb NOT NULL,
	"action_digest" text NOT NULL,
	CONSTRAINT "action_run_id_action_revision_pk" PRIMARY KEY("run_id","action_revision"),
	CONSTRAINT "action_json_is_canonical" CHECK (action = action_canonical::jsonb),
	CONSTRAINT "action_digest_is_of_bytes" CHECK (action_digest = 'sha256:' || encode(sha256('cs.action.v1'::bytea || '\x00'::bytea || convert_to(action_canonical, 'UTF8')), 'hex'))
);
--> statement-breakpoint
CREATE TABLE "cs"."api_key" (
	"key_id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"principal_id" text NOT NULL,
	"role" text NOT NULL,
	"secret_hash" text NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL,
	"expires_at" timestamp(6) with time zone,
	"revoked_at" timestamp(6) with time zone,
	CONSTRAINT "api_key_role_known" CHECK (role in ('requester', 'approver', 'operator', 'auditor'))
);
--> statement-breakpoint
CREATE TABLE "cs"."approval_request" (
	"approval_id" text PRIMARY KEY NOT NULL,
	"run_id" uuid NOT NULL,
	"action_revision" integer NOT NULL,
	"action_digest" text NOT NULL,
	"canonical" text NOT NULL,
	"approval_digest" text NOT NULL,
	"display" jsonb NOT NULL,
	"policy" text NOT NULL,
	"policy_version" integer NOT NULL,
	"policy_rule" text NOT NULL,
	"approvals_required" smallint NOT NULL,
	"expires_at" timestamp(6) with time zone NOT NULL,
	"nonce" text NOT NULL,
	CONSTRAINT "approval_request_action" UNIQUE("run_id","action_revision"),
	CONSTRAINT "approval_request_asks_somebody" CHECK (approvals_required >= 1),
	CONSTRAINT "approval_request_digest_is_of_bytes" CHECK (approval_digest = 'sha256:' || encode(sha256('cs.approval.v1'::bytea || '\x00'::bytea || convert_to(canonical, 'UTF8')), 'hex'))
);
--> statement-breakpoint
CREATE TABLE "cs"."attempt" (
	"attempt_id" text PRIMARY KEY NOT NULL,
	"run_id" uuid NOT NULL,
	"n" smallint NOT NULL,
	"revision" integer NOT NULL,
	"action_digest" text NOT NULL,
	"request_bytes" "bytea" NOT NULL,
	"request_digest" text NOT NULL,
	"idempotency_key" text NOT NULL,
	"instance_id" text NOT NULL,
	"started_at" timestamp(6) with time zone NOT NULL,
	"call_deadline" timestamp(6) with time zone NOT NULL,
	"status" text DEFAULT 'started' NOT NULL,
	"provider_ref" text,
	"response" jsonb,
	"closed_at" timestamp(6) with time zone,
	CONSTRAINT "attempt_n" UNIQUE("run_id","n"),
	CONSTRAINT "attempt_status_known" CHECK (status in ('started', 'succeeded', 'rejected', 'not_sent', 'uncertain')),
	CONSTRAINT "attempt_closed_iff_ended" CHECK ((status = 'started') = (closed_at is null)),
	CONSTRAINT "attempt_deadline_after_start" CHECK (call_deadline > started_at),
	CONSTRAINT "attempt_digest_is_of_bytes" CHECK (request_digest = 'sha256:' || encode(sha256('cs.request-bytes.v1'::bytea || '\x00'::bytea || request_bytes), 'hex'))
);
--> statement-breakpoint
CREATE TABLE "cs"."audit_event" (
	"audit_id" bigserial PRIMARY KEY NOT NULL,
	"at" timestamp(6) with time zone NOT NULL,
	"service" text NOT NULL,
	"tenant_id" text,
	"principal_id" text,
	"run_id" uuid,
	"what" text NOT NULL,
	"code" text NOT NULL,
	"detail" jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "cs"."decision" (
	"decision_id" text PRIMARY KEY NOT NULL,
	"approval_id" text NOT NULL,
	"run_id" uuid NOT NULL,
	"revision" integer NOT NULL,
	"decision" text NOT NULL,
	"principal_id" text NOT NULL,
	"method" text NOT NULL,
	"action_digest" text NOT NULL,
	"action_revision" integer NOT NULL,
	"approval_digest" text NOT NULL,
	"decided_at" timestamp(6) with time zone NOT NULL,
	"reason" text,
	CONSTRAINT "decision_once_per_person" UNIQUE("approval_id","principal_id"),
	CONSTRAINT "decision_known" CHECK (decision in ('approve', 'reject')),
	CONSTRAINT "decision_method_known" CHECK (method in ('dev_key', 'passkey'))
);
--> statement-breakpoint
CREATE TABLE "cs"."evidence" (
	"evidence_id" text PRIMARY KEY NOT NULL,
	"run_id" uuid NOT NULL,
	"revision" integer NOT NULL,
	"round" smallint NOT NULL,
	"kind" text NOT NULL,
	"source_ref" text NOT NULL,
	"observed_at" timestamp(6) with time zone NOT NULL,
	"version_marker" text,
	"trusted" boolean NOT NULL,
	"facts_digest" text NOT NULL,
	"attempt_id" text
);
--> statement-breakpoint
CREATE TABLE "cs"."evidence_value" (
	"evidence_id" text PRIMARY KEY NOT NULL,
	"salt" text NOT NULL,
	"facts_canonical" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "cs"."executor_instance" (
	"instance_id" text PRIMARY KEY NOT NULL,
	"service" text NOT NULL,
	"started_at" timestamp(6) with time zone NOT NULL,
	"beat_at" timestamp(6) with time zone NOT NULL,
	"ended_at" timestamp(6) with time zone
);
--> statement-breakpoint
CREATE TABLE "cs"."hold" (
	"scope" text PRIMARY KEY NOT NULL,
	"reason" text NOT NULL,
	"set_by" text NOT NULL,
	"set_at" timestamp(6) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "cs"."legal_move" (
	"from_state" text NOT NULL,
	"trigger" text NOT NULL,
	"to_state" text NOT NULL,
	"services" text[] NOT NULL,
	"facts" text[] NOT NULL,
	"counts" text,
	"requires" text[] NOT NULL,
	"attempt_status" text,
	"observation_kind" text,
	CONSTRAINT "legal_move_from_state_trigger_pk" PRIMARY KEY("from_state","trigger")
);
--> statement-breakpoint
CREATE TABLE "cs"."observation" (
	"run_id" uuid NOT NULL,
	"revision" integer NOT NULL,
	"at" timestamp(6) with time zone NOT NULL,
	"kind" text NOT NULL,
	"provider_ref" text,
	"body" jsonb NOT NULL,
	CONSTRAINT "observation_run_id_revision_pk" PRIMARY KEY("run_id","revision")
);
--> statement-breakpoint
CREATE TABLE "cs"."principal" (
	"principal_id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"name" text NOT NULL,
	"kind" text NOT NULL,
	"disabled_at" timestamp(6) with time zone,
	CONSTRAINT "principal_name" UNIQUE("tenant_id","name"),
	CONSTRAINT "principal_kind_known" CHECK (kind in ('person', 'service_account'))
);
--> statement-breakpoint
CREATE TABLE "cs"."proposal" (
	"proposal_id" text PRIMARY KEY NOT NULL,
	"run_id" uuid NOT NULL,
	"revision" integer NOT NULL,
	"author" text NOT NULL,
	"author_kind" text NOT NULL,
	"body_canonical" text NOT NULL,
	"body_digest" text NOT NULL,
	CONSTRAINT "proposal_author_kind" CHECK (author_kind in ('rules', 'model', 'external'))
);
--> statement-breakpoint
CREATE TABLE "cs"."proposal_refusal" (
	"proposal_id" text PRIMARY KEY NOT NULL,
	"run_id" uuid NOT NULL,
	"revision" integer NOT NULL,
	"code" text NOT NULL,
	"message" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "cs"."run" (
	"run_id" uuid PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"request_id" text NOT NULL,
	"generation" integer NOT NULL,
	"supersedes" uuid,
	"workflow" text NOT NULL,
	"workflow_version" integer NOT NULL,
	"connector" text NOT NULL,
	"connector_version" text NOT NULL,
	"proposer" text NOT NULL,
	"requested_by" text NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL,
	"state" text NOT NULL,
	"state_since" timestamp(6) with time zone NOT NULL,
	"committed_at" timestamp(6) with time zone NOT NULL,
	"revision" integer NOT NULL,
	"action_revision" integer,
	"read_failures" smallint DEFAULT 0 NOT NULL,
	"proposal_cycles" smallint DEFAULT 0 NOT NULL,
	"verification_waits" smallint DEFAULT 0 NOT NULL,
	"look_ups" smallint DEFAULT 0 NOT NULL,
	"attempts" smallint DEFAULT 0 NOT NULL,
	"not_sent_retries" smallint DEFAULT 0 NOT NULL,
	"evidence_round" smallint DEFAULT 0 NOT NULL,
	"evidence_complete" boolean DEFAULT false NOT NULL,
	"decisions_sufficient" boolean DEFAULT false NOT NULL,
	"retry_allowed" boolean DEFAULT false NOT NULL,
	"run_deadline" timestamp(6) with time zone NOT NULL,
	"approval_id" text,
	"approval_expires_at" timestamp(6) with time zone,
	"wake_at" timestamp(6) with time zone,
	"parked_reason" text,
	"stop_reason" jsonb,
	"resource_key" text,
	"in_flight_key" text,
	"chain_head" text NOT NULL,
	"trace_context" text,
	CONSTRAINT "run_request_generation" UNIQUE("tenant_id","request_id","generation"),
	CONSTRAINT "run_revision_positive" CHECK (revision >= 1),
	CONSTRAINT "run_supersedes_generation" CHECK ((generation = 1) = (supersedes is null)),
	CONSTRAINT "run_state_known" CHECK (state in ('queued', 'preflight', 'collecting', 'proposed', 'awaiting_approval', 'executing', 'verifying', 'completed', 'rejected', 'expired', 'failed', 'needs_reconciliation')),
	CONSTRAINT "run_due_or_parked" CHECK (state in ('completed', 'rejected', 'expired', 'failed') or wake_at is not null or parked_reason is not null),
	CONSTRAINT "run_stop_reason_iff_stopped" CHECK ((stop_reason is not null) = (state in ('rejected', 'expired', 'failed', 'needs_reconciliation'))),
	CONSTRAINT "run_stop_reason_shape" CHECK (stop_reason is null or (stop_reason ? 'code' and stop_reason ? 'message')),
	CONSTRAINT "run_parked_only_in_doubt" CHECK (parked_reason is null or state = 'needs_reconciliation'),
	CONSTRAINT "run_retry_only_in_doubt" CHECK (not retry_allowed or (state = 'needs_reconciliation' and parked_reason is null)),
	CONSTRAINT "run_executing_holds_resource" CHECK (state <> 'executing' or in_flight_key is not null),
	CONSTRAINT "run_in_flight_only_in_doubt" CHECK (in_flight_key is null or state in ('executing', 'needs_reconciliation')),
	CONSTRAINT "run_action_before_approval" CHECK (state not in ('awaiting_approval', 'executing', 'verifying', 'completed', 'needs_reconciliation') or action_revision is not null),
	CONSTRAINT "run_attempt_before_effect" CHECK (state not in ('executing', 'verifying', 'completed', 'needs_reconciliation') or attempts >= 1),
	CONSTRAINT "run_approval_within_run" CHECK (approval_expires_at is null or approval_expires_at <= run_deadline)
);
--> statement-breakpoint
CREATE TABLE "cs"."run_event" (
	"run_id" uuid NOT NULL,
	"revision" integer NOT NULL,
	"from_state" text,
	"to_state" text NOT NULL,
	"trigger" text NOT NULL,
	"actor" text NOT NULL,
	"at" timestamp(6) with time zone NOT NULL,
	"payload" text NOT NULL,
	"payload_digest" text NOT NULL,
	"previous_hash" text,
	"hash" text NOT NULL,
	CONSTRAINT "run_event_run_id_revision_pk" PRIMARY KEY("run_id","revision")
);
--> statement-breakpoint
CREATE TABLE "cs"."run_input" (
	"run_id" uuid PRIMARY KEY NOT NULL,
	"input_canonical" text NOT NULL,
	"input" jsonb NOT NULL,
	"body_digest" text NOT NULL,
	"approval_life_ms" integer,
	"allowed_operations" text[] NOT NULL,
	"context" jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "cs"."service_login" (
	"login" text PRIMARY KEY NOT NULL,
	"service" text NOT NULL
);
--> statement-breakpoint
ALTER TABLE "cs"."action" ADD CONSTRAINT "action_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."api_key" ADD CONSTRAINT "api_key_principal_id_principal_principal_id_fk" FOREIGN KEY ("principal_id") REFERENCES "cs"."principal"("principal_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."approval_request" ADD CONSTRAINT "approval_request_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."attempt" ADD CONSTRAINT "attempt_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."decision" ADD CONSTRAINT "decision_approval_id_approval_request_approval_id_fk" FOREIGN KEY ("approval_id") REFERENCES "cs"."approval_request"("approval_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."evidence" ADD CONSTRAINT "evidence_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."evidence_value" ADD CONSTRAINT "evidence_value_evidence_id_evidence_evidence_id_fk" FOREIGN KEY ("evidence_id") REFERENCES "cs"."evidence"("evidence_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."observation" ADD CONSTRAINT "observation_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."proposal" ADD CONSTRAINT "proposal_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."proposal_refusal" ADD CONSTRAINT "proposal_refusal_proposal_id_proposal_proposal_id_fk" FOREIGN KEY ("proposal_id") REFERENCES "cs"."proposal"("proposal_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."run_event" ADD CONSTRAINT "run_event_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."run_input" ADD CONSTRAINT "run_input_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "audit_event_run" ON "cs"."audit_event" USING btree ("run_id") WHERE run_id is not null;--> statement-breakpoint
CREATE INDEX "audit_event_tenant" ON "cs"."audit_event" USING btree ("tenant_id","audit_id");--> statement-breakpoint
CREATE INDEX "decision_run" ON "cs"."decision" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "evidence_run" ON "cs"."evidence" USING btree ("run_id");--> statement-breakpoint
CREATE UNIQUE INDEX "evidence_once_per_attempt" ON "cs"."evidence" USING btree ("attempt_id","kind") WHERE attempt_id is not null;--> statement-breakpoint
CREATE INDEX "proposal_run" ON "cs"."proposal" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "run_wake" ON "cs"."run" USING btree ("wake_at") WHERE wake_at is not null;--> statement-breakpoint
CREATE INDEX "run_parked" ON "cs"."run" USING btree ("run_id") WHERE parked_reason is not null;--> statement-breakpoint
CREATE INDEX "run_tenant_state" ON "cs"."run" USING btree ("tenant_id","state","run_id");--> statement-breakpoint
CREATE UNIQUE INDEX "run_in_flight" ON "cs"."run" USING btree ("in_flight_key") WHERE in_flight_key is not null;--> statement-breakpoint
CREATE INDEX "run_resource_in_doubt" ON "cs"."run" USING btree ("resource_key") WHERE state in ('executing', 'needs_reconciliation');