import { type DestinationStream, type Logger, pino, stdTimeFunctions } from 'pino';
import { traceFields } from './tracing.ts';

export type { Logger };

/** Where Postgres quotes what it refused: a whole row in `detail`, the text that it could not read in `where`. Constraint and table stay. */
const QUOTING = ['detail', 'where'];

/**
 * A JSON logger for one process, with the fields of the catalogue (docs/reference/spans-and-log-fields.md). Inside a span every line names it.
 * What could hold a secret is censored wherever it is nested two deep or less, and so is what Postgres quotes of
 * the data in an error.
 */
export function createLogger(
  options: { service: string; instance_id: string; level: string },
  destination?: DestinationStream,
): Logger {
  const settings = {
    level: options.level,
    base: { service: options.service, instance_id: options.instance_id },
    timestamp: stdTimeFunctions.isoTime,
    messageKey: 'message',
    mixin: traceFields,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: {
      paths: [
        'authorization',
        '*.authorization',
        'key',
        '*.key',
        'password',
        '*.password',
        'secret',
        '*.secret',
        'url.password',
        ...QUOTING.flatMap((member) => [`err.${member}`, `err.aggregateErrors[*].${member}`]),
      ],
      censor: '[redacted]',
    },
  };
  return destination === undefined ? pino(settings) : pino(settings, destination);
}
