import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { RefundAction } from '@counterstamp/connectors';
import { type Digest, epochMs, LIMITS, PROFILES, Revision, type RunId } from '@counterstamp/manifest-core';
import { DecisionPreImage, decisionChallenge, decisionPreImage } from '@counterstamp/signatures';
import type { ApprovalTerms } from '@counterstamp/workflows';
import { describe, expect, test } from 'vitest';
import { decideAction } from '../services/preflight/src/decide.ts';
import { evidence, loaded, manifest, proposal } from './manifest-builder.ts';
import { workflow } from './refund-case.ts';

const read = (name: string) => readFileSync(new URL(`../docs/reference/${name}`, import.meta.url), 'utf8');
const page = read('approval-format.md');
interface Digested {
  domain: string;
  text: string;
  digest: Digest;
}
interface Vector {
  action: Digested;
  evidence: { evidence_id: string; facts_digest: Digest }[];
  evidence_set: Digested;
  display: Digested;
  approval: Digested;
  decision: { text: string; challenge: string };
}
/** What our code may choose of an approval request; the rest follows from action, evidence and run. */
interface Bound extends ApprovalTerms {
  approval_id: string;
  run_id: RunId;
  tenant_id: string;
  action_revision: number;
  expires_at: string;
  nonce: string;
}
const vector = JSON.parse(read('approval-vectors.json')) as Vector;
const bound = JSON.parse(vector.approval.text) as Bound;

describe('the published approval vector', () => {
  const sha256 = (text: string) => createHash('sha256').update(text, 'utf8').digest('hex');
  const digested = Object.entries(vector).flatMap(([name, part]) => ('domain' in part ? [{ name, ...part }] : []));

  test.each(digested)('has the digest of $name, recomputed with nothing of ours', ({ domain, text, digest }) => {
    expect(digest).toBe(`sha256:${sha256(`${domain}\0${text}`)}`);
  });

  test('binds its parts by digest', () => {
    expect(bound).toMatchObject({
      action_digest: vector.action.digest,
      evidence_set_digest: vector.evidence_set.digest,
      display_digest: vector.display.digest,
    });
    const lines = vector.evidence.map((item) => `${item.evidence_id} ${item.facts_digest}`);
    expect(vector.evidence_set.text).toBe(lines.sort().join('\n'));
  });

  test('has a decision on its digest, and the challenge that its passkey signs', () => {
    expect(JSON.parse(vector.decision.text)).toMatchObject({
      approval_id: bound.approval_id,
      approval_digest: vector.approval.digest,
    });
    expect(vector.decision.challenge).toBe(sha256(vector.decision.text));
  });

  test('shows what could deceive as an escape', () => {
    expect(vector.action.text).toContain('\u202e');
    expect(vector.display.text).toContain('⟦U+202E⟧');
  });

  test('is the one that the page names, and the page names every member', () => {
    expect(page).toContain(vector.approval.digest);
    for (const member of [...Object.keys(bound), ...Object.keys(JSON.parse(vector.decision.text))])
      expect(page).toMatch(new RegExp(`^\\| (.*, )?${member}(,.*)? \\|`, 'm'));
  });
});

describe('our code', () => {
  test('asks for exactly the published approval', () => {
    const durations = PROFILES.fast;
    const nowMs = epochMs(bound.expires_at) - durations.approval_life_ms;
    const run = manifest({
      run_id: bound.run_id,
      tenant_id: bound.tenant_id,
      revision: Revision.parse(bound.action_revision - 1),
      deadlines: { run: bound.expires_at, approval: null },
      evidence: vector.evidence.map(({ evidence_id, facts_digest }) =>
        evidence('order_record', {}, { evidence_id, facts_digest }),
      ),
    });
    const { policy, policy_version, policy_rule, approvals_required, groups_required, method, break_glass } = bound;
    const decision = decideAction(
      loaded(run, nowMs),
      proposal({}),
      {
        kind: 'accepted',
        action: RefundAction.parse(JSON.parse(vector.action.text)),
        terms: { policy, policy_version, policy_rule, approvals_required, groups_required, method, break_glass },
      },
      workflow,
      { approval_id: bound.approval_id, nonce: bound.nonce },
      { durations, limits: LIMITS },
    );
    expect(decision).toMatchObject({
      on: 'action_fixed',
      facts: {
        action: { canonical: vector.action.text, digest: vector.action.digest },
        approval_request: {
          canonical: vector.approval.text,
          approval_digest: vector.approval.digest,
          display_canonical: vector.display.text,
        },
      },
    });
  });

  test('has exactly the published decision signed', () => {
    const fields = DecisionPreImage.parse(JSON.parse(vector.decision.text));
    expect(decisionPreImage(fields)).toBe(vector.decision.text);
    expect(Buffer.from(decisionChallenge(vector.decision.text)).toString('hex')).toBe(vector.decision.challenge);
  });
});
