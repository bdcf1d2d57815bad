import { FAILPOINTS } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
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
