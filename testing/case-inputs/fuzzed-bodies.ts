import type { JsonValue } from '@counterstamp/manifest-core';
import fc from 'fast-check';

/** Bodies of `POST /v1/runs` that nobody in their right mind would send, beside some that are right but strangely spelled. */

const binaryText = fc.string({ unit: 'binary' });
const wellFormedText = binaryText.map((text) => text.toWellFormed().replaceAll('\0', '')).filter((text) => text !== '');
const anyJson = fc.jsonValue({ stringUnit: 'binary' }) as fc.Arbitrary<JsonValue>;
const goodNumber = fc.oneof(
  fc.maxSafeInteger(),
  fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e15, max: 1e15 }),
);
/** Free-form JSON that the gate has nothing against. */
const goodJson: fc.Arbitrary<JsonValue> = fc.letrec<{ value: JsonValue }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom(null, true, false, 0, -0, 'constructor', ''),
    goodNumber,
    wellFormedText,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(
      wellFormedText.filter((name) => name !== '__proto__'),
      tie('value'),
      { maxKeys: 4 },
    ),
  ),
})).value;

const id = fc.nat({ max: 2 ** 31 - 1 }).map((n) => `case_fuzz:${n}`);
const amount = fc.oneof(fc.integer({ min: 1, max: 1_000_000 }), fc.constantFrom(1, 2 ** 53 - 1));
const currency = fc.constantFrom('USD', 'JPY', 'KWD', 'EUR');
const text = (max: number) => wellFormedText.map((words) => words.slice(0, max).toWellFormed());

/** A body that is right: whatever it holds, it must be kept as it is. */
const rightBody = fc.record(
  {
    request_id: id,
    input: fc.record(
      {
        order_id: fc.constantFrom('order_913', '0', 'a:b:c', '00123'),
        requested_amount_minor: amount,
        currency,
        reason: text(40),
        metadata: fc.dictionary(fc.constantFrom('note', 'constructor', 'toString', 'ключ', '😀', 'a/b~c'), goodJson),
      },
      { requiredKeys: ['order_id', 'requested_amount_minor', 'currency', 'reason'] },
    ),
    workflow: fc.constant('refund'),
    proposal: fc.record({
      operation: fc.constant('refund_order'),
      order_id: fc.constant('order_913'),
      amount_minor: amount,
      currency,
      reason: text(40),
      explanation: text(40),
    }),
    context: fc.array(fc.record({ source: fc.constantFrom('mail', 'chat#7'), text: text(40) }), { maxLength: 2 }),
  },
  { requiredKeys: ['request_id', 'input'] },
) as fc.Arbitrary<JsonValue>;

/** Numbers from 0 to 7, used one after the other and again from the start. */
const dice = fc.array(fc.nat({ max: 7 }), { minLength: 12, maxLength: 40 });

/** The same value in another spelling: blanks, order of members, escapes, zeros behind the point. */
function spell(value: JsonValue, throws: readonly number[]): string {
  let thrown = 0;
  const die = () => throws[thrown++ % throws.length] ?? 0;
  const blank = () => ['', ' ', '\n', '\t ', '', '', '', ''][die()] ?? '';
  const string = (of: string) =>
    `"${Array.from(of)
      .map((unit) => {
        if (die() !== 7) return JSON.stringify(unit).slice(1, -1);
        return unit
          .split('')
          .map((half) => `\\u${half.charCodeAt(0).toString(16).padStart(4, '0')}`)
          .join('');
      })
      .join('')}"`;
  const write = (of: JsonValue): string => {
    if (typeof of === 'string') return string(of);
    if (typeof of === 'number') {
      const digits = Object.is(of, -0) ? '-0' : JSON.stringify(of);
      return die() === 7 && /^-?\d+$/.test(digits) ? `${digits}.0` : digits;
    }
    if (typeof of !== 'object' || of === null) return JSON.stringify(of);
    if (Array.isArray(of)) return `[${blank()}${of.map(write).join(`${blank()},${blank()}`)}${blank()}]`;
    const members = Object.entries(of).map(([name, inner]) => `${string(name)}${blank()}:${blank()}${write(inner)}`);
    if (die() > 3) members.reverse();
    return `{${blank()}${members.join(`${blank()},${blank()}`)}${blank()}}`;
  };
  return `${blank()}${write(value)}${blank()}`;
}

const spelled = fc.tuple(rightBody, dice).map(([body, throws]) => spell(body, throws));

/** Pieces that lenient parsers read in more than one way. */
const trouble = fc.constantFrom(
  '"requested_amount_minor":1,',
  '"requested_amount_min\\u006fr":1,',
  '"__proto__":{"approved":true},',
  '"approved":true,',
  '\\ud83d',
  '\\u0000',
  '\ud83d',
  'e2',
  '.5',
  '9007199254740993',
  '-',
  '{',
  ']',
  '"',
  ',',
  '\uFEFF',
  '/**/',
);

/** Text of a right body with one place cut out, doubled, or filled with trouble. */
const mutated = fc
  .tuple(spelled, fc.nat(), fc.nat({ max: 12 }), fc.oneof(trouble, binaryText, fc.constant('')), fc.boolean())
  .map(([body, at, length, put, doubles]) => {
    const place = at % (body.length + 1);
    const piece = body.slice(place, place + length);
    return body.slice(0, place) + (doubles ? piece + piece : put) + body.slice(place + length);
  });

const places: readonly (readonly (string | number)[])[] = [
  ['workflow'],
  ['request_id'],
  ['input'],
  ['allowed_operations'],
  ['allowed_operations', 0],
  ['proposer'],
  ['proposal'],
  ['context'],
  ['context', 0],
  ['context', 0, 'text'],
  ['supersedes'],
  ['approval_life_ms'],
  ['input', 'order_id'],
  ['input', 'metadata'],
  ['input', 'metadata', 'a'],
  ['input', 'requested_amount_minor'],
  ['input', 'currency'],
  ['input', 'reason'],
  ['proposal', 'amount_minor'],
  ['proposal', 'metadata'],
  ['proposal', 'evidence_refs'],
  ['extra'],
];
const anything = fc.oneof(
  anyJson,
  goodJson,
  binaryText,
  fc.double(),
  fc.bigInt().map(Number),
  fc.constantFrom('refund', 'external', 'read_order', '\u0000', '\ud800', -0, 2 ** 53, 1e308, '__proto__'),
);
/** A right body with anything at all in one place. */
const misfilled = fc
  .tuple(rightBody, fc.constantFrom(...places), anything)
  .map(([body, path, value]) => JSON.stringify(put(body, path, value)));

function put(body: unknown, [first, ...rest]: readonly (string | number)[], value: unknown): unknown {
  if (first === undefined) return value;
  const inside = (body as Record<string | number, unknown> | undefined)?.[first];
  if (typeof first === 'number') return [put(inside, rest, value)];
  return { ...(body as object), [first]: put(inside, rest, value) };
}

const encoder = new TextEncoder();
const bytesOf = (arbitrary: fc.Arbitrary<string>) => arbitrary.map((body) => encoder.encode(body));

/** Raw bytes, arbitrary JSON, right bodies in strange spellings, and right bodies gone wrong. */
const fuzzedBody: fc.Arbitrary<Uint8Array<ArrayBuffer>> = fc.oneof(
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 300 }).map((bytes) => new Uint8Array(bytes)) },
  { weight: 2, arbitrary: bytesOf(fc.json({ stringUnit: 'binary' })) },
  { weight: 3, arbitrary: bytesOf(spelled) },
  { weight: 3, arbitrary: bytesOf(mutated) },
  { weight: 3, arbitrary: bytesOf(misfilled) },
);

/** Bodies that are under way at a time. */
const BATCH = 50;

/**
 * Sends ten thousand bodies through one door, a batch at a time. `FUZZ_BODIES` changes how many, `FUZZ_SEED` repeats a failure, which
 * names the seed and the body.
 * @param send one body through the door.
 * @param afterBatch what must hold when a batch is through.
 * @returns how many were sent.
 */
export async function fuzzDoor(
  send: (body: Uint8Array<ArrayBuffer>) => Promise<void>,
  afterBatch: () => Promise<void>,
): Promise<number> {
  const seed = Number(process.env.FUZZ_SEED ?? Date.now() % 2 ** 31);
  const bodies = fc.sample(fuzzedBody, { numRuns: Number(process.env.FUZZ_BODIES ?? 10_000), seed });
  for (let at = 0; at < bodies.length; at += BATCH) {
    const batch = bodies.slice(at, at + BATCH);
    await Promise.all(
      batch.map((body) =>
        send(body).catch((cause: unknown) => {
          throw new Error(`FUZZ_SEED=${seed}, the body in base64: ${Buffer.from(body).toString('base64')}`, { cause });
        }),
      ),
    );
    await afterBatch().catch((cause: unknown) => {
      throw new Error(`FUZZ_SEED=${seed}, bodies ${at} to ${at + BATCH - 1}`, { cause });
    });
  }
  return bodies.length;
}
