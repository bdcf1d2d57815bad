import { readFileSync } from 'node:fs';
import { DockerfileParser } from 'dockerfile-ast';

export interface DockerInstruction {
  keyword: string;
  /** What follows the keyword, flags included, continuation lines joined. */
  text: string;
  words: string[];
  /** The command of an instruction in exec form. */
  exec: string[] | undefined;
}

/** What follows one FROM. */
export interface DockerStage {
  base: string;
  name: string | undefined;
  instructions: DockerInstruction[];
}

/** The stages of a Dockerfile, in order; the last one is the image. */
export function readDockerfile(path: string): DockerStage[] {
  const stages: DockerStage[] = [];
  for (const instruction of DockerfileParser.parse(readFileSync(path, 'utf8')).getInstructions()) {
    const keyword = instruction.getKeyword();
    const text = instruction.toString().slice(keyword.length).trim(); // Its other getters leave out the flags of COPY.
    const words = text.split(/\s+/);
    if (keyword === 'FROM') {
      stages.push({
        base: words[0] ?? '',
        name: words[1]?.toUpperCase() === 'AS' ? words[2] : undefined,
        instructions: [],
      });
      continue;
    }
    stages.at(-1)?.instructions.push({ keyword, text, words, exec: execForm(text) });
  }
  return stages;
}

/** The last instruction of its kind, which is the one that counts. */
export function lastOf(stage: DockerStage | undefined, keyword: string): DockerInstruction | undefined {
  return stage?.instructions.filter((instruction) => instruction.keyword === keyword).at(-1);
}

/** The variables that a stage sets. */
export function environmentOf(stage: DockerStage | undefined): Record<string, string> {
  const words = stage?.instructions.filter(({ keyword }) => keyword === 'ENV').flatMap((env) => env.words) ?? [];
  return Object.fromEntries(words.map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]));
}

function execForm(text: string): string[] | undefined {
  const list = /(?:^|^(?:--\S+\s+)*CMD )(\[.*\])$/s.exec(text)?.[1];
  if (list === undefined) return undefined;
  const parsed: unknown = JSON.parse(list);
  return Array.isArray(parsed) ? parsed.map(String) : undefined;
}
