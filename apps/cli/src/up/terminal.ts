/** What a person at the terminal sees. */
export interface Terminal {
  line(text: string): void;
  /** Runs one step and prints its name, what came of it and how long it took. */
  step<T>(name: string, work: () => Promise<T>, told: (result: T) => string): Promise<T>;
  /** Something that happened by itself. */
  notice(text: string): void;
}

const NAME_WIDTH = 10;

export function createTerminal(write: (text: string) => void = (text) => process.stdout.write(text)): Terminal {
  return {
    line: (text) => write(`${text}\n`),
    async step(name, work, told) {
      const startedAt = performance.now();
      const result = await work();
      const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
      write(`  ${name.padEnd(NAME_WIDTH)} ${told(result)} (${seconds} s)\n`);
      return result;
    },
    notice: (text) => write(`! ${text.trimEnd().replaceAll('\n', '\n  ')}\n`),
  };
}
