import { vi } from 'vitest';
import { createProgram } from '../src/program.ts';

/** Runs a command in this process: what it printed, and what the process would end with. */
export async function runCommand(...args: string[]): Promise<{ printed: string; exit: number }> {
  const write = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  try {
    await createProgram().parseAsync(args, { from: 'user' });
    return { printed: write.mock.calls.map(([text]) => String(text)).join(''), exit: Number(process.exitCode ?? 0) };
  } finally {
    write.mockRestore();
    process.exitCode = undefined;
  }
}
