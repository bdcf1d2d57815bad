import { readFileSync } from 'node:fs';
import type { JsonObject } from '@counterstamp/manifest-core';

/** Name of a file of this folder without `doc-` and the endings, such as `01a`. */
type CaseName = string;

/** The file as it is. All of them are UTF-8. */
function caseText(name: CaseName): string {
  return readFileSync(new URL(`doc-${name}.json.raw`, import.meta.url), 'utf8');
}

/** The whole file as a lenient parser reads it. */
export function caseValue(name: CaseName): JsonObject {
  return JSON.parse(caseText(name)) as JsonObject;
}

/** The file's `action`, of which the published digests are made. */
export function caseAction(name: CaseName): JsonObject {
  return caseValue(name).action as JsonObject;
}

/** The bytes as our members, whichever door: what has no home of its own goes into `metadata`. */
function mapped(name: CaseName, order_id: string): string {
  return (
    caseText(name)
      .replace('"payment_ref": "pay_test_0001"', `"order_id": "${order_id}"`)
      .replace('"payment_ref": "pay_test_jpy_5800"', `"order_id": "${order_id}"`)
      .replace('"payment_ref": ', '"order_id": ')
      .replace(/"note": ("(?:[^"\\]|\\.)*"(?:,\s*"summary": "[^"]*")?)/, '"metadata": { "note": $1 }')
      // What a customer wrote is context of the request: their words, and where they came from.
      .replace(
        /"evidence": \[\s*\{ "kind": "\w+", "source": "(\w+)", "ref": "(\w+)", "observed_at": "[^"]+",/,
        '"context": [ { "source": "$1:$2",',
      )
  );
}

/** The file as a body of `POST /v1/runs`. Who asks is the key's to say, so `requested_by` gives its place to the request's id. */
export function asCreateBody(
  name: CaseName,
  { request_id, order_id = 'pay_test_0001' }: { request_id: string; order_id?: string },
): string {
  return mapped(name, order_id)
    .replace('"action":', '"input":')
    .replace(/"type": "refund\.create",\s*/, '')
    .replace(/,\s*"type": "refund\.create"/, '')
    .replaceAll('"amount_min', '"requested_amount_min')
    .replace('"requested_by": "agent:support-7"', `"request_id": "${request_id}"`);
}

/** The file as a body of `POST /v1/runs/{run_id}/proposals`. */
export function asProposeBody(name: CaseName, order_id = 'pay_test_0001'): string {
  return mapped(name, order_id)
    .replace('"action":', '"proposal":')
    .replace('"type": "refund.create"', '"operation": "refund_order"')
    .replace(/,\s*"requested_by": "agent:support-7"/, '')
    .replace(/"requested_by": "agent:support-7",\s*/, '');
}
