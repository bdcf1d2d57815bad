import type { Command } from 'commander';
import { addDecision } from '../decide-run.ts';

/** `counterstamp reject`. */
export function addReject(program: Command): void {
  addDecision(program, 'reject', 'Show what a run would do, and reject it. The run ends; nothing is sent.');
}
