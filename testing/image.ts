import { execFile } from 'node:child_process';
import { cp, mkdir, readFile, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { type DockerStage, environmentOf, lastOf, readDockerfile } from './dockerfile.ts';

const run = promisify(execFile);

/** Milliseconds for one RUN; `npm ci` is the slowest. */
const RUN_MS = 300_000;

/** What a Dockerfile makes, as a folder. */
export interface Image {
  /** Folder that stands for the image's `/`. */
  root: string;
  environment: Record<string, string>;
  entrypoint: string[];
  healthcheck: string[];
  uid: number;
  /** A command of the image with the paths below `/app` where they are here. */
  inPlace(command: readonly string[]): string[];
}

/**
 * Follows a Dockerfile without Docker: every stage is a folder, COPY copies, RUN runs in the stage's folder with this machine's Node. The
 * base image itself is not there: what it brings (Node, the user) is the machine's.
 * @throws {Error} for an instruction that it does not know, or a RUN that fails.
 */
export async function followDockerfile(into: string): Promise<Image> {
  const stages = readDockerfile('Dockerfile');
  const roots = new Map<string, string>();
  for (const [index, stage] of stages.entries()) {
    const root = join(into, stage.name ?? `stage-${index}`);
    roots.set(stage.name ?? String(index), root);
    await followStage(stage, root, roots);
  }
  const image = stages.at(-1);
  const root = [...roots.values()].at(-1);
  if (image === undefined || root === undefined) throw new Error('no stage');
  return {
    root,
    environment: environmentOf(image),
    entrypoint: lastOf(image, 'ENTRYPOINT')?.exec ?? [],
    healthcheck: lastOf(image, 'HEALTHCHECK')?.exec ?? [],
    uid: Number(lastOf(image, 'USER')?.words[0]?.split(':')[0]),
    inPlace: (command) => command.map((word) => (word.startsWith('/app/') ? join(root, word) : word)),
  };
}

async function followStage(stage: DockerStage, root: string, roots: ReadonlyMap<string, string>): Promise<void> {
  let workdir = '/';
  for (const { keyword, text, words } of stage.instructions) {
    if (keyword === 'WORKDIR') {
      workdir = resolve(workdir, words[0] ?? '');
      await mkdir(join(root, workdir), { recursive: true });
    } else if (keyword === 'COPY') {
      const from = /^--from=(.*)$/.exec(words[0] ?? '')?.[1];
      const paths = from === undefined ? words : words.slice(1);
      const target = join(root, resolve(workdir, paths.at(-1) ?? ''));
      for (const source of paths.slice(0, -1)) {
        if (from === undefined) await copyContext(source, target);
        else await copyFrom(join(roots.get(from) ?? '', source), target, (paths.at(-1) ?? '').endsWith('/'));
      }
    } else if (keyword === 'RUN') {
      const { npm_config_local_prefix: _, ...env } = process.env; // npm's own, when it runs us: it would install there.
      await run('sh', ['-ec', text], { cwd: join(root, workdir), env, timeout: RUN_MS, maxBuffer: 1 << 26 });
    } else if (!['ENV', 'EXPOSE', 'USER', 'HEALTHCHECK', 'ENTRYPOINT', 'CMD'].includes(keyword)) {
      throw new Error(`${keyword} is not known here`);
    }
  }
}

/** COPY from the build context: what git sees, less what .dockerignore leaves out. */
async function copyContext(source: string, target: string): Promise<void> {
  if (source !== '.') throw new Error(`COPY ${source} is not known here`);
  const ignored = dockerIgnore(await readFile('.dockerignore', 'utf8'));
  const { stdout } = await run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    maxBuffer: 1 << 26,
  });
  for (const file of stdout.split('\0')) {
    if (file === '' || ignored(file)) continue;
    if (await stat(file).catch(() => undefined)) await cp(file, join(target, file));
  }
}

async function copyFrom(source: string, target: string, isFolder: boolean): Promise<void> {
  const file = (await stat(source)).isFile();
  const place = file && isFolder ? join(target, source.slice(source.lastIndexOf('/') + 1)) : target;
  await mkdir(dirname(place), { recursive: true });
  await cp(source, place, { recursive: true, verbatimSymlinks: true });
}

/** Whether a .dockerignore leaves a path out: the last line that matches it or a folder above it decides. */
export function dockerIgnore(text: string): (path: string) => boolean {
  const rules = text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const pattern = line
        .replace(/^!/, '')
        .replace(/[.+^$()|{}[\]\\]/g, '\\$&')
        .replaceAll('**/', '\0')
        .replaceAll('*', '[^/]*')
        .replaceAll('\0', '(?:.*/)?');
      return { out: !line.startsWith('!'), pattern: new RegExp(`^${pattern}(?:/.*)?$`) };
    });
  return (path) => rules.filter(({ pattern }) => pattern.test(path)).at(-1)?.out ?? false;
}
