import { readdirSync, readFileSync } from 'node:fs';

export const RUNBOOKS = 'docs/operations/runbooks';
/** The page that leads to them. */
export const MONITORING = 'docs/operations/monitoring.md';

/** Files of all runbooks. */
export function runbookPages(): string[] {
  return readdirSync(RUNBOOKS)
    .filter((name) => name.endsWith('.md'))
    .map((name) => `${RUNBOOKS}/${name}`);
}

/** Every expression that somebody on call is told to paste, one a line. */
export function runbookQueries(): { where: string; expr: string }[] {
  return [...runbookPages(), MONITORING].flatMap((where) =>
    [...readFileSync(where, 'utf8').matchAll(/```promql\n([\s\S]*?)```/g)].flatMap(([, block = '']) =>
      block
        .trim()
        .split('\n')
        .map((expr) => ({ where, expr })),
    ),
  );
}
