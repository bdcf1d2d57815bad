/** Lines of plain text that are repeated to a person at most. */
const LINES_MAX = 12;

/**
 * What a process said before it ended, from its log: the text that is not JSON (a configuration report, a crash of Node itself), else the
 * message of its last error.
 */
export function lastWords(log: string): string {
  const lines = log.split('\n').filter((line) => line.trim() !== '');
  const plain = lines.filter((line) => !line.startsWith('{'));
  if (plain.length > 0) return plain.slice(0, LINES_MAX).join('\n');
  for (const line of lines.toReversed()) {
    const said = errorOf(line);
    if (said !== undefined) return said;
  }
  return '';
}

function errorOf(line: string): string | undefined {
  try {
    const entry: unknown = JSON.parse(line);
    if (typeof entry !== 'object' || entry === null) return undefined;
    const { level, message, err, error } = entry as Record<string, unknown>;
    if (level !== 'error' && level !== 'fatal') return undefined;
    const cause = typeof err === 'object' && err !== null && 'message' in err ? err.message : error;
    return typeof cause === 'string' ? `${String(message)}: ${cause}` : String(message);
  } catch {
    return undefined;
  }
}
