import { verify } from 'node:crypto';
import { z } from 'zod';
import { bytesOfBase64 } from './base64.ts';
import type { KeyPurpose, SigningKey, TrustedKeys } from './keys.ts';

/** More signatures than one key before and one after a rotation need only cost a verifier time. */
const SIGNATURES_MAX = 8;

/**
 * DSSE's JSON envelope (https://github.com/secure-systems-lab/dsse): `payload` and `sig` are base64, `keyid` is the thumbprint of the key.
 * Members beside these are refused: nothing signs them, and a reader could take them for part of the statement.
 */
export const Envelope = z.strictObject({
  payloadType: z.string(),
  payload: z.string(),
  signatures: z
    .array(z.strictObject({ keyid: z.string(), sig: z.string() }))
    .min(1)
    .max(SIGNATURES_MAX),
});
export type Envelope = z.infer<typeof Envelope>;

export type EnvelopeFault = 'envelope_malformed' | 'payload_type_differs' | 'key_unknown' | 'signature_invalid';
export type OpenedEnvelope = { ok: true; payload: string; key_id: string } | { ok: false; fault: EnvelopeFault };

/** DSSE's pre-authentication encoding, the bytes that are signed: both lengths are in bytes, so no other pair of type and body gives the same. */
export function preAuthenticationEncoding(payloadType: string, body: Uint8Array): Uint8Array {
  const type = Buffer.from(payloadType, 'utf8');
  return Buffer.concat([Buffer.from(`DSSEv1 ${type.byteLength} `), type, Buffer.from(` ${body.byteLength} `), body]);
}

/**
 * Signs a text with its type.
 * @throws {RangeError} for a payload with half a surrogate pair: its UTF-8 would be another text.
 */
export function sealEnvelope(payloadType: string, payload: string, key: SigningKey): Envelope {
  if (!payload.isWellFormed()) throw new RangeError('a payload with a lone surrogate has no UTF-8 form');
  const body = Buffer.from(payload, 'utf8');
  const signature = key.sign(preAuthenticationEncoding(payloadType, body));
  return {
    payloadType,
    payload: body.toString('base64'),
    signatures: [{ keyid: key.key_id, sig: Buffer.from(signature).toString('base64') }],
  };
}

/**
 * The payload of an envelope that a trusted key signed for this purpose. One such signature is enough, whatever the others are: an envelope
 * may carry one by the old key and one by the new. `key_id` says whose held.
 */
export function openEnvelope(
  envelope: unknown,
  payloadType: string,
  keys: TrustedKeys,
  purpose: KeyPurpose,
): OpenedEnvelope {
  const parsed = Envelope.safeParse(envelope);
  if (!parsed.success) return { ok: false, fault: 'envelope_malformed' };
  const body = bytesOfBase64(parsed.data.payload);
  const payload = body === undefined ? undefined : utf8Text(body);
  if (body === undefined || payload === undefined) return { ok: false, fault: 'envelope_malformed' };
  if (parsed.data.payloadType !== payloadType) return { ok: false, fault: 'payload_type_differs' };

  const signed = preAuthenticationEncoding(payloadType, body);
  let fault: EnvelopeFault = 'key_unknown';
  for (const { keyid, sig } of parsed.data.signatures) {
    // The keyid chooses among trusted keys and proves nothing itself; the id that is returned is that of the key that verified.
    const key = keys.find(keyid, purpose);
    if (key === undefined) continue;
    const signature = bytesOfBase64(sig);
    if (signature !== undefined && verify(null, signed, key, signature)) return { ok: true, payload, key_id: keyid };
    fault = 'signature_invalid';
  }
  return { ok: false, fault };
}

function utf8Text(bytes: Uint8Array): string | undefined {
  try {
    // A byte order mark stays in the text: dropped, two payloads would read the same.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}
