import {
  CreationOptions,
  type DecideBody,
  DecidedRun,
  DecisionChallenge,
  PROBLEM_MEDIA_TYPE,
  Problem,
  ProblemError,
  SessionView,
} from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import {
  createSoftwareAuthenticator,
  type SoftwareAuthenticator,
} from '@counterstamp/signatures/software-authenticator';
import { z } from 'zod';
import type { Holder } from './scenario.ts';

/** Milliseconds for one request of a signer. */
const TIMEOUT_MS = 15_000;

/** What a browser reads of WebAuthn's options, as far as a software passkey needs it. */
const CreationJson = z.object({
  challenge: z.string(),
  rp: z.object({ id: z.string(), name: z.string() }),
  user: z.object({ id: z.string(), name: z.string(), displayName: z.string() }),
  pubKeyCredParams: z.array(z.object({ type: z.literal('public-key'), alg: z.number() })),
});
const RequestJson = z.object({
  challenge: z.string(),
  rpId: z.string(),
  allowCredentials: z.array(z.object({ type: z.literal('public-key'), id: z.string() })).optional(),
});

/** A person of the tour with a passkey in software, signed in over public HTTP as a browser would be. */
export interface Signer {
  /** Decides on exactly this; an approval is signed. @throws {ProblemError} */
  decide(run_id: RunId, body: DecideBody): Promise<DecidedRun>;
}

/** A browser in as few words as possible: a cookie, the session's token, the page's origin. */
export async function enrolSigner(fleet: { api_url: string; origin: string }, invitation: string): Promise<Signer> {
  const authenticator = createSoftwareAuthenticator({ origin: fleet.origin });
  let cookie: string | undefined;
  let csrfToken: string | undefined;

  async function post<T>(path: string, schema: z.ZodType<T>, body: unknown): Promise<T> {
    const response = await fetch(`${fleet.api_url}${path}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        origin: fleet.origin,
        ...(cookie === undefined ? {} : { cookie }),
        ...(csrfToken === undefined ? {} : { 'x-csrf-token': csrfToken }),
      },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const answer: unknown = await response.json();
    if (response.headers.get('content-type')?.startsWith(PROBLEM_MEDIA_TYPE) === true)
      throw new ProblemError(Problem.parse(answer));
    cookie = response.headers.get('set-cookie')?.split(';')[0] ?? cookie;
    return schema.parse(answer);
  }

  const asked = await post('/v1/enrolment/options', CreationOptions, { invitation });
  const registered = await authenticator.register(CreationJson.parse(asked.options));
  const session = await post('/v1/enrolment', SessionView, { invitation, name: 'tour', response: registered });
  csrfToken = session.csrf_token;

  return {
    async decide(run_id, body) {
      const path = `/v1/runs/${run_id}/decisions`;
      if (body.decision === 'reject') return await post(path, DecidedRun, body);
      const { reason: _, ...shown } = body;
      const { pre_image, options } = await post(`${path}/challenge`, DecisionChallenge, shown);
      const response = await authenticator.authenticate(requestOf(options));
      return await post(path, DecidedRun, { ...body, assertion: { pre_image, response } });
    },
  };
}

function requestOf(options: unknown): Parameters<SoftwareAuthenticator['authenticate']>[0] {
  const { allowCredentials, ...request } = RequestJson.parse(options);
  return allowCredentials === undefined ? request : { ...request, allowCredentials };
}

/** Who signs, by tenant and person; everybody else of the tour calls with a key. */
export type Signers = ReadonlyMap<Holder, Signer>;
