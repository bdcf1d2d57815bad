import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { FAILPOINTS, RunId } from '@counterstamp/manifest-core';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { armedFailpoints, noFailpoints, parseFailpoints } from './failpoint.ts';

describe('the text of failpoints', () => {
  test.each<[string, [string, object][]]>([
    ['', []],
    [',', []],
    ['stage.loaded=kill', [['stage.loaded', { kind: 'kill' }]]],
    ['stage.loaded=stop', [['stage.loaded', { kind: 'stop' }]]],
    ['stage.loaded=wait:0', [['stage.loaded', { kind: 'wait', ms: 0 }]]],
    [
      'dispatch.loaded=wait:250,verify.read.before-commit=kill',
      [
        ['dispatch.loaded', { kind: 'wait', ms: 250 }],
        ['verify.read.before-commit', { kind: 'kill' }],
      ],
    ],
  ])('%j is understood', (text, expected) => {
    const { actions, faults } = parseFailpoints(text);
    expect([...actions]).toEqual(expected);
    expect(faults).toEqual([]);
  });

  test.each([
    ['stage.lodaed=kill', 'no failpoint "stage.lodaed"'],
    ['=kill', 'no failpoint ""'],
    ['stage.loaded', 'not ""'],
    ['stage.loaded=explode', 'not "explode"'],
    ['stage.loaded=hold', 'not "hold"'],
    ['stage.loaded=folder:/points', 'not "folder:/points"'],
    ['*=folder:relative', 'no failpoint "*"'],
    ['*=kill', 'no failpoint "*"'],
    ['stage.loaded=wait', 'not "wait"'],
    ['stage.loaded=wait:-1', 'not "wait:-1"'],
    ['stage.loaded=wait:1s', 'not "wait:1s"'],
    ['stage.loaded=wait:99999999', 'not "wait:99999999"'],
  ])('%j is a fault that names what is wrong', (text, expected) => {
    const { actions, faults } = parseFailpoints(text);
    expect(actions.size).toBe(0);
    expect(faults).toHaveLength(1);
    expect(faults[0]).toContain(expected);
  });

  test('with several faults names each, and every failpoint has a name that it understands', () => {
    expect(parseFailpoints('a=kill,stage.loaded=kill,b=kill').faults).toHaveLength(2);
    const all = parseFailpoints(FAILPOINTS.map((name) => `${name}=stop`).join(','));
    expect([...all.actions.keys()]).toEqual([...FAILPOINTS]);
  });

  test('a folder arms every failpoint', () => {
    const { actions, faults } = parseFailpoints('*=folder:/points');
    expect(faults).toEqual([]);
    expect([...actions.keys()]).toEqual([...FAILPOINTS]);
    expect(actions.get('stage.loaded')).toEqual({ kind: 'folder', folder: '/points' });
  });
});

describe('a failpoint', () => {
  test('that is not armed does nothing', async () => {
    const armed = armedFailpoints(new Map([['stage.loaded', { kind: 'kill' }]]));
    for (const failpoint of [noFailpoints, armed])
      for (const name of FAILPOINTS.filter((point) => point !== 'stage.loaded')) {
        await failpoint.reach(name);
        failpoint.reachSync(name);
      }
  });

  test('acts once: the process that it waited in goes on the next time', async () => {
    const armed = armedFailpoints(new Map([['stage.loaded', { kind: 'wait', ms: 1 }]]));
    const order: string[] = [];
    const first = armed.reach('stage.loaded').then(() => order.push('first'));
    await armed.reach('stage.loaded').then(() => order.push('second'));
    await first;
    expect(order).toEqual(['second', 'first']);
  });
});

describe('a folder of failpoints', () => {
  const RUN = RunId.parse('run_01930000-0000-7000-8000-000000000001');
  const OTHER = RunId.parse('run_01930000-0000-7000-8000-000000000002');
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'cs-failpoints-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  const failpoints = () => armedFailpoints(parseFailpoints(`*=folder:${folder}`).actions);

  test('acts only for the run that it names, and only in the one process that takes it', async () => {
    const [first, second] = [failpoints(), failpoints()];
    writeFileSync(path.join(folder, `stage.loaded@${RUN}`), 'wait:1');
    await first.reach('stage.loaded', OTHER);
    await first.reach('stage.loaded');
    await first.reach('stage.before-commit', RUN);
    expect(readdirSync(folder)).toEqual([`stage.loaded@${RUN}`]);
    await first.reach('stage.loaded', RUN);
    expect(readdirSync(folder)).toEqual([`stage.loaded@${RUN}.fired.${process.pid}`]);
    await second.reach('stage.loaded', RUN);
    expect(readdirSync(folder)).toHaveLength(1);
  });

  test('holds until the file is removed', async () => {
    writeFileSync(path.join(folder, 'verify.read.before-commit'), 'hold');
    let passed = false;
    const held = failpoints()
      .reach('verify.read.before-commit', RUN)
      .then(() => {
        passed = true;
      });
    const taken = path.join(folder, `verify.read.before-commit.fired.${process.pid}`);
    await expect.poll(() => existsSync(taken)).toBe(true);
    expect(passed).toBe(false);
    rmSync(taken);
    await held;
  });

  test('a word that it does not know is a bug of the test, not a silence', () => {
    writeFileSync(path.join(folder, 'stage.loaded'), 'explode');
    expect(() => failpoints().reachSync('stage.loaded', RUN)).toThrow(/explode/);
  });

  test.each(['reach', 'reachSync'] as const)(
    '%s by SIGKILL: says so first, runs nothing afterwards; what was handed to a socket before leaves with reach, and stays with reachSync',
    async (way) => {
      writeFileSync(path.join(folder, `dispatch.call-sent@${RUN}`), 'kill');
      const source = fileURLToPath(new URL('failpoint.ts', import.meta.url));
      const script = `
        import { writeFileSync } from 'node:fs';
        import { armedFailpoints, parseFailpoints } from ${JSON.stringify(source)};
        const failpoint = armedFailpoints(parseFailpoints(${JSON.stringify(`*=folder:${folder}`)}).actions);
        setImmediate(() => writeFileSync(${JSON.stringify(path.join(folder, 'left'))}, ''));
        await failpoint.${way}('dispatch.call-sent', ${JSON.stringify(RUN)});
        writeFileSync(${JSON.stringify(path.join(folder, 'after'))}, '');`;
      const child = spawn(
        process.execPath,
        ['--import', 'tsx', '--conditions=source', '--input-type=module', '-e', script],
        { stdio: ['ignore', 'ignore', 'pipe'] },
      );
      let said = '';
      child.stderr.on('data', (data: Buffer) => {
        said += String(data);
      });
      const [, signal] = (await once(child, 'close')) as [number | null, string | null];
      expect(signal, said).toBe('SIGKILL');
      expect(JSON.parse(said.trim())).toEqual({
        failpoint: 'dispatch.call-sent',
        run_id: RUN,
        pid: child.pid,
        action: 'kill',
      });
      expect(existsSync(path.join(folder, 'after'))).toBe(false);
      expect(existsSync(path.join(folder, 'left'))).toBe(way === 'reach');
      expect(readFileSync(path.join(folder, `dispatch.call-sent@${RUN}.fired.${child.pid}`), 'utf8')).toBe('kill');
    },
  );
});
