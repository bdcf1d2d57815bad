import { expect, test } from 'vitest';
import { completedStory, type Predicate } from '../testing/receipt-story.ts';
import { outcomeMatches } from './outcome-check.ts';
import { ReceiptPredicate } from './predicate.ts';

/** The story, with another end: its last event recorded this, and the receipt shows that. */
async function ended(refs: object, outcome: Partial<NonNullable<Predicate['outcome']>> | null) {
  const story = await completedStory();
  const payload = JSON.stringify({ set: {}, refs });
  return outcomeMatches(
    ReceiptPredicate.parse({
      ...story,
      run: { ...story.run, state: 'failed' },
      events: story.events.map((event) => (event.to === 'completed' ? { ...event, payload } : event)),
      outcome: outcome === null ? null : { ...story.outcome, ...outcome },
    }),
  );
}

const verdict = {
  verdict: 'landed_differently',
  evidence: 'statement of the bank',
  observed_at: '2026-01-01T00:01:00Z',
  provider_ref: 'rf_9',
  effect: { amount_minor: 500 },
};
const body = {
  verdict: verdict.verdict,
  evidence: verdict.evidence,
  observed_at: '2026-01-01T00:01:00.000000Z',
  effect: verdict.effect,
};

test("a person's verdict is the outcome that its event recorded", async () => {
  expect(await ended({ verdict }, { kind: 'person', body })).toMatchObject({ ok: true });
});
test.each([
  ['another verdict', { body: { ...body, verdict: 'did_not_land' } }],
  ['another effect', { body: { ...body, effect: { amount_minor: 600 } } }],
  ['other evidence', { body: { ...body, evidence: 'hearsay' } }],
  ['another name of the effect', { provider_ref: null }],
  ['a look instead', { kind: 'matched' as const }],
])("a person's verdict is not %s", async (_, change) => {
  expect(await ended({ verdict }, { kind: 'person', body, ...change })).toMatchObject({ ok: false });
});
test('an observation that the history recorded may not be left out', async () => {
  expect(await ended({ verdict }, null)).toMatchObject({ ok: false });
});
test('where nothing was observed there is no outcome', async () => {
  expect(await ended({}, null)).toMatchObject({ ok: 'absent' });
  expect(await ended({}, {})).toMatchObject({ ok: false });
});
