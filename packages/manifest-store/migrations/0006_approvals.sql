-- Two spellings of one name are one principal from now on: whoever has both says which stays, before anything is changed.
do $$
declare v_names text;
begin
  select string_agg(format('%s/%s', p.tenant_id, p.name), ', ' order by p.tenant_id, lower(p.name)) into v_names from cs.principal p
   where exists (select from cs.principal o where o.tenant_id = p.tenant_id and o.principal_id <> p.principal_id and lower(o.name) = lower(p.name));
  if v_names is not null then
    raise exception 'principals whose names differ in case only: %; rename all but one of each (update cs.principal set name = …) and migrate again', v_names;
  end if;
end $$;
--> statement-breakpoint
CREATE TABLE "cs"."challenge" (
	"challenge" text PRIMARY KEY NOT NULL,
	"purpose" text NOT NULL,
	"principal_id" text,
	"subject" jsonb NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL,
	"expires_at" timestamp(6) with time zone NOT NULL,
	"consumed_at" timestamp(6) with time zone,
	CONSTRAINT "challenge_purpose_known" CHECK (purpose in ('enrol', 'sign_in', 'step_up', 'decide'))
);
--> statement-breakpoint
CREATE TABLE "cs"."checkpoint" (
	"seq" integer PRIMARY KEY NOT NULL,
	"at" timestamp(6) with time zone NOT NULL,
	"covered_until" timestamp(6) with time zone NOT NULL,
	"envelope" jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "cs"."checkpoint_leaf" (
	"run_id" uuid NOT NULL,
	"seq" integer NOT NULL,
	"leaf_index" integer NOT NULL,
	"revision" integer NOT NULL,
	"chain_head" text NOT NULL,
	CONSTRAINT "checkpoint_leaf_run_id_seq_pk" PRIMARY KEY("run_id","seq"),
	CONSTRAINT "checkpoint_leaf_order" UNIQUE("seq","leaf_index")
);
--> statement-breakpoint
CREATE TABLE "cs"."decision_assertion" (
	"decision_id" text PRIMARY KEY NOT NULL,
	"credential_id" text NOT NULL,
	"pre_image" text NOT NULL,
	"client_data_json" "bytea" NOT NULL,
	"authenticator_data" "bytea" NOT NULL,
	"signature" "bytea" NOT NULL
);
--> statement-breakpoint
CREATE TABLE "cs"."invitation" (
	"invitation_id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"principal_id" text NOT NULL,
	"token_hash" text NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL,
	"expires_at" timestamp(6) with time zone NOT NULL,
	"consumed_at" timestamp(6) with time zone,
	CONSTRAINT "invitation_token_hash_unique" UNIQUE("token_hash")
);
--> statement-breakpoint
CREATE TABLE "cs"."passkey" (
	"credential_id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"principal_id" text NOT NULL,
	"public_key" text NOT NULL,
	"transports" text[] NOT NULL,
	"name" text NOT NULL,
	"backed_up" boolean NOT NULL,
	"certificate" jsonb NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL,
	"last_used_at" timestamp(6) with time zone,
	"revoked_at" timestamp(6) with time zone
);
--> statement-breakpoint
CREATE TABLE "cs"."principal_identity" (
	"issuer" text NOT NULL,
	"subject" text NOT NULL,
	"tenant_id" text NOT NULL,
	"principal_id" text NOT NULL,
	CONSTRAINT "principal_identity_issuer_subject_pk" PRIMARY KEY("issuer","subject")
);
--> statement-breakpoint
CREATE TABLE "cs"."session" (
	"session_id" text PRIMARY KEY NOT NULL,
	"secret_hash" text NOT NULL,
	"tenant_id" text NOT NULL,
	"principal_id" text NOT NULL,
	"method" text NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL,
	"authenticated_at" timestamp(6) with time zone NOT NULL,
	"last_seen_at" timestamp(6) with time zone NOT NULL,
	"expires_at" timestamp(6) with time zone NOT NULL,
	"revoked_at" timestamp(6) with time zone,
	CONSTRAINT "session_secret_hash_unique" UNIQUE("secret_hash"),
	CONSTRAINT "session_method_known" CHECK (method in ('passkey', 'oidc'))
);
--> statement-breakpoint
CREATE TABLE "cs"."subject_key" (
	"tenant_id" text NOT NULL,
	"subject" text NOT NULL,
	"wrapped_key" "bytea",
	"created_at" timestamp(6) with time zone NOT NULL,
	"erased_at" timestamp(6) with time zone,
	CONSTRAINT "subject_key_tenant_id_subject_pk" PRIMARY KEY("tenant_id","subject"),
	CONSTRAINT "subject_key_erased_has_none" CHECK ((erased_at is not null) = (wrapped_key is null))
);
--> statement-breakpoint
ALTER TABLE "cs"."decision" DROP CONSTRAINT "decision_once_per_person";--> statement-breakpoint
ALTER TABLE "cs"."principal" DROP CONSTRAINT "principal_name";--> statement-breakpoint
ALTER TABLE "cs"."decision" DROP CONSTRAINT "decision_method_known";--> statement-breakpoint
DROP INDEX "cs"."decision_run";--> statement-breakpoint
ALTER TABLE "cs"."evidence_value" ALTER COLUMN "salt" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."evidence_value" ALTER COLUMN "facts_canonical" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."proposal" ALTER COLUMN "body_canonical" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."run_input" ALTER COLUMN "input_canonical" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."run_input" ALTER COLUMN "input" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."run_input" ALTER COLUMN "context" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."api_key" ADD COLUMN "last_used_at" timestamp(6) with time zone;--> statement-breakpoint
ALTER TABLE "cs"."approval_request" ADD COLUMN "groups_required" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."approval_request" ADD COLUMN "method" text DEFAULT 'session' NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."approval_request" ADD COLUMN "break_glass" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."decision" ADD COLUMN "break_glass" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."evidence_value" ADD COLUMN "sealed" "bytea";--> statement-breakpoint
ALTER TABLE "cs"."principal" ADD COLUMN "roles" text[] DEFAULT '{}' NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."principal" ADD COLUMN "groups" text[] DEFAULT '{}' NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."principal" ADD COLUMN "owner_id" text;--> statement-breakpoint
ALTER TABLE "cs"."proposal" ADD COLUMN "sealed" "bytea";--> statement-breakpoint
ALTER TABLE "cs"."run_input" ADD COLUMN "on_behalf_of" text;--> statement-breakpoint
ALTER TABLE "cs"."run_input" ADD COLUMN "subject" text;--> statement-breakpoint
ALTER TABLE "cs"."run_input" ADD COLUMN "sealed" "bytea";--> statement-breakpoint
ALTER TABLE "cs"."checkpoint_leaf" ADD CONSTRAINT "checkpoint_leaf_seq_checkpoint_seq_fk" FOREIGN KEY ("seq") REFERENCES "cs"."checkpoint"("seq") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."decision_assertion" ADD CONSTRAINT "decision_assertion_decision_id_decision_decision_id_fk" FOREIGN KEY ("decision_id") REFERENCES "cs"."decision"("decision_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."invitation" ADD CONSTRAINT "invitation_principal_id_principal_principal_id_fk" FOREIGN KEY ("principal_id") REFERENCES "cs"."principal"("principal_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."passkey" ADD CONSTRAINT "passkey_principal_id_principal_principal_id_fk" FOREIGN KEY ("principal_id") REFERENCES "cs"."principal"("principal_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."principal_identity" ADD CONSTRAINT "principal_identity_principal_id_principal_principal_id_fk" FOREIGN KEY ("principal_id") REFERENCES "cs"."principal"("principal_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cs"."session" ADD CONSTRAINT "session_principal_id_principal_principal_id_fk" FOREIGN KEY ("principal_id") REFERENCES "cs"."principal"("principal_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "challenge_expiry" ON "cs"."challenge" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "passkey_principal" ON "cs"."passkey" USING btree ("principal_id");--> statement-breakpoint
CREATE INDEX "session_principal" ON "cs"."session" USING btree ("principal_id");--> statement-breakpoint
CREATE INDEX "audit_event_alarm" ON "cs"."audit_event" USING btree ("tenant_id","audit_id") WHERE what = 'alarm';--> statement-breakpoint
CREATE INDEX "decision_approval" ON "cs"."decision" USING btree ("approval_id");--> statement-breakpoint
CREATE UNIQUE INDEX "principal_name_once" ON "cs"."principal" USING btree ("tenant_id",lower("name"));--> statement-breakpoint
CREATE INDEX "run_event_at" ON "cs"."run_event" USING brin ("at");--> statement-breakpoint
CREATE INDEX "run_input_subject" ON "cs"."run_input" USING btree ("subject");--> statement-breakpoint
ALTER TABLE "cs"."decision" ADD CONSTRAINT "decision_once_per_revision" UNIQUE("run_id","revision");--> statement-breakpoint
ALTER TABLE "cs"."approval_request" ADD CONSTRAINT "approval_request_method_known" CHECK (method in ('session', 'passkey'));--> statement-breakpoint
ALTER TABLE "cs"."decision" ADD CONSTRAINT "decision_break_glass_is_signed_and_told" CHECK (not break_glass or (decision = 'approve' and method = 'passkey' and reason is not null));--> statement-breakpoint
ALTER TABLE "cs"."decision" ADD CONSTRAINT "decision_method_known" CHECK (method in ('dev_key', 'session', 'passkey'));--> statement-breakpoint
ALTER TABLE "cs"."evidence_value" ADD CONSTRAINT "evidence_value_in_one_form" CHECK ((sealed is null) = (salt is not null) and (sealed is null) = (facts_canonical is not null));--> statement-breakpoint
ALTER TABLE "cs"."principal" ADD CONSTRAINT "principal_roles_known" CHECK (roles <@ array['requester', 'approver', 'operator', 'auditor', 'break_glass']::text[]);--> statement-breakpoint
ALTER TABLE "cs"."principal" ADD CONSTRAINT "principal_service_account_never_decides" CHECK (kind = 'person' or not roles && array['approver', 'operator', 'break_glass']::text[]);--> statement-breakpoint
ALTER TABLE "cs"."proposal" ADD CONSTRAINT "proposal_in_one_form" CHECK ((sealed is null) = (body_canonical is not null));--> statement-breakpoint
ALTER TABLE "cs"."run_input" ADD CONSTRAINT "run_input_in_one_form" CHECK ((sealed is null) = (input_canonical is not null) and (sealed is null) = (input is not null) and (sealed is null) = (context is not null) and (sealed is null or subject is not null));