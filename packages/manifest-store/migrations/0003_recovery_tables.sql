CREATE TABLE "cs"."verdict_support" (
	"run_id" uuid NOT NULL,
	"principal_id" text NOT NULL,
	"kind" text NOT NULL,
	"attempts" smallint NOT NULL,
	"subject_digest" text NOT NULL,
	"reason" text NOT NULL,
	"at" timestamp(6) with time zone NOT NULL,
	CONSTRAINT "verdict_support_run_id_principal_id_kind_attempts_subject_digest_pk" PRIMARY KEY("run_id","principal_id","kind","attempts","subject_digest"),
	CONSTRAINT "verdict_support_kind_known" CHECK (kind in ('waive_fencing', 'confirm_difference'))
);
--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD COLUMN "host" text;--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD COLUMN "pid" integer;--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD COLUMN "lease_at" timestamp(6) with time zone;--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD COLUMN "lease_lost_at" timestamp(6) with time zone;--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD COLUMN "ended_by" text;--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD COLUMN "end_evidence" text;--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD COLUMN "credential_rotated" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."run" ADD COLUMN "retries_refused" smallint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "cs"."verdict_support" ADD CONSTRAINT "verdict_support_run_id_run_run_id_fk" FOREIGN KEY ("run_id") REFERENCES "cs"."run"("run_id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "attempt_open" ON "cs"."attempt" USING btree ("instance_id") WHERE status = 'started';--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD CONSTRAINT "executor_instance_ended_by_known" CHECK (ended_by in ('self', 'supervisor', 'operator'));--> statement-breakpoint
ALTER TABLE "cs"."executor_instance" ADD CONSTRAINT "executor_instance_end_is_told" CHECK ((ended_at is null) = (ended_by is null));