// The connectors, but for one: it names a key of its own for every request, and says so on stderr.
import { randomUUID } from 'node:crypto';
import { writeSync } from 'node:fs';
import { createSandboxPayments as real } from '@counterstamp/connectors';

export * from '@counterstamp/connectors';

/** @param {Parameters<typeof real>[0]} options */
export function createSandboxPayments(options) {
  const connector = real(options);
  return {
    ...connector,
    /** @type {typeof connector.prepare} */
    prepare(action, bind) {
      const prepared = connector.prepare(action, bind);
      const minted = `random-${randomUUID()}`;
      writeSync(2, `${JSON.stringify({ minted })}\n`);
      const headers = { ...prepared.request.headers, 'Idempotency-Key': minted };
      return { ...prepared, request: { ...prepared.request, headers } };
    },
  };
}
