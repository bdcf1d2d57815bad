import type { Command } from 'commander';
import { addDecision } from '../decide-run.ts';

/** `counterstamp approve`. */
export function addApprove(program: Command): void {
  addDecision(program, 'approve', 'Show what a run would do, byte for byte, and approve it.');
}
