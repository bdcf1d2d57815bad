import type { Read } from '@counterstamp/connectors';
import { type JsonObject, type Manifest, STATES, type State } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { approvedRun, effect, proposedRun, workflow } from '../../../testing/refund-case.ts';
import { defineWorkflow, type Workflow } from './define-workflow.ts';
import { callFor, refuseOperation } from './dispatcher.ts';
import { observeEffect } from './observe-effect.ts';
import { createSystems, workflowOf } from './systems.ts';

describe('an operation', () => {
  const run = proposedRun({ state: 'collecting' });
  const waiting = approvedRun();

  test('is permitted when the workflow declares it, the run lists it and the state is one for it', () => {
    expect(refuseOperation(workflow, run, 'read_order', 'read')).toBeUndefined();
    expect(refuseOperation(workflow, waiting, 'refund_order', 'write')).toBeUndefined();
  });

  test.each<[string, Manifest, string, 'read' | 'write', string]>([
    [
      'that the workflow does not declare',
      { ...run, allowed_operations: ['drop_table'] },
      'drop_table',
      'read',
      'is not an operation',
    ],
    [
      'that every object has',
      { ...run, allowed_operations: ['constructor'] },
      'constructor',
      'read',
      'is not an operation',
    ],
    ['a write that is called as a read', waiting, 'refund_order', 'read', 'is a write operation'],
    ['a read that is called as a write', waiting, 'read_order', 'write', 'is a read operation'],
    [
      'that the run does not list',
      { ...run, allowed_operations: ['read_request'] },
      'read_order',
      'read',
      'allowed operations',
    ],
    ['a write before anything is approved', run, 'refund_order', 'write', 'while the run is collecting'],
    [
      'a write while an effect is in doubt',
      approvedRun({ state: 'needs_reconciliation' }),
      'refund_order',
      'write',
      'needs_reconciliation',
    ],
    ['a write while one is under way', approvedRun({ state: 'executing' }), 'refund_order', 'write', 'executing'],
    ['a read while one is under way', approvedRun({ state: 'executing' }), 'read_order', 'read', 'executing'],
  ])('is refused: %s', (_, on, operation, kind, why) => {
    expect(refuseOperation(workflow, on, operation, kind)).toContain(why);
  });

  test('that writes is permitted in doubt for a recorded retry', () => {
    const recorded = approvedRun({ state: 'needs_reconciliation', retry_allowed: true });
    expect(refuseOperation(workflow, recorded, 'refund_order', 'write')).toBeUndefined();
  });

  test('that writes is permitted in one state alone', () => {
    const permitted = STATES.filter(
      (state: State) => refuseOperation(workflow, { ...waiting, state }, 'refund_order', 'write') === undefined,
    );
    expect(permitted).toEqual(['awaiting_approval']);
  });
});

describe('a call', () => {
  function calling(run: Manifest, reads?: Record<string, Read>) {
    const made: [string, JsonObject][] = [];
    const note =
      (name: string): Read =>
      (args) => {
        made.push([name, args]);
        return Promise.resolve({ kind: 'missing', source_ref: name });
      };
    const all = reads ?? {
      read_request: note('read_request'),
      read_order: note('read_order'),
      refund_order: note('refund_order'),
    };
    return { call: callFor(workflow, run, all), made };
  }
  const run = proposedRun({ state: 'collecting' });

  test('reaches the system when it is permitted', async () => {
    const { call, made } = calling(run);
    const args = { tenant_id: 'shop_north', request_id: 'case_2841' };
    expect(await call('read_request', args)).toEqual({ kind: 'missing', source_ref: 'read_request' });
    expect(made).toEqual([['read_request', args]]);
  });

  test.each<[string, Manifest, string, JsonObject]>([
    ['for another tenant', run, 'read_request', { tenant_id: 'shop_south', request_id: 'case_2841' }],
    ['for no tenant where one is named', run, 'read_request', { tenant_id: null, request_id: 'case_2841' }],
    ['of a write operation', run, 'refund_order', {}],
    ['of an unknown operation', run, 'drop_table', {}],
    ['that the run does not list', { ...run, allowed_operations: [] }, 'read_order', { order_id: 'order_913' }],
    ['in a state that permits none', { ...run, state: 'executing' }, 'read_order', { order_id: 'order_913' }],
    ['that no system offers', run, 'read_payment', { payment_id: 'pay_913' }],
  ])('reaches nothing: %s', async (_, on, operation, args) => {
    const { call, made } = calling(on);
    expect(await call(operation, args)).toMatchObject({ kind: 'not_permitted' });
    expect(made).toEqual([]);
  });

  test('finds no system behind a name that every object has', async () => {
    const operations = Object.fromEntries([...Object.entries(workflow.operations), ['toString', 'read' as const]]);
    const declared: Workflow = { ...workflow, operations };
    const call = callFor(declared, { ...run, allowed_operations: ['toString'] }, {});
    expect(await call('toString', {})).toMatchObject({ kind: 'not_permitted' });
  });
});

describe('a look at the effect', () => {
  const inDoubt = approvedRun({ state: 'needs_reconciliation' });
  const found = { kind: 'found', match: 'exact', effect: effect() } as const;
  const seeing = (): { flow: Workflow; asked: unknown[] } => {
    const asked: unknown[] = [];
    const observe: Workflow['connector']['observe'] = (action, bind) => {
      asked.push([action, bind]);
      return Promise.resolve(found);
    };
    return { flow: { ...workflow, connector: { ...workflow.connector, observe } }, asked };
  };

  test.each(['verifying', 'needs_reconciliation', 'failed', 'completed'] as const)(
    'is taken in %s, by the stored action and the attempts',
    async (state) => {
      const { flow, asked } = seeing();
      const run = { ...inDoubt, state };
      expect(await observeEffect(run, flow)).toEqual(found);
      expect(asked).toEqual([
        [
          run.action?.fields,
          {
            run_id: run.run_id,
            action_digest: run.action?.digest,
            attempts: run.attempts,
            fields: workflow.verifiedFields,
          },
        ],
      ]);
    },
  );

  test('is unknown, not absent, when the workflow is not installed', async () => {
    expect(await observeEffect(inDoubt, undefined)).toMatchObject({
      kind: 'unknown',
      reason: expect.stringContaining('not installed'),
    });
  });

  test('is unknown, not absent, when the run may not look', async () => {
    const { flow, asked } = seeing();
    expect(await observeEffect({ ...inDoubt, allowed_operations: ['refund_order'] }, flow)).toMatchObject({
      kind: 'unknown',
    });
    expect(asked).toEqual([]);
  });

  test('of a run without an action is a bug', async () => {
    await expect(observeEffect({ ...inDoubt, action: null }, workflow)).rejects.toThrow('without an action');
  });
});

describe('the definition of a workflow', () => {
  test.each<[string, Partial<Workflow>, string]>([
    ['whose effect is not declared', { effectOperation: 'pay_out' }, 'not declared as a write'],
    [
      'whose effect is declared as a read',
      { operations: { ...workflow.operations, refund_order: 'read' } },
      'not declared as a write',
    ],
    ['whose look-up is not declared', { observeOperation: 'look' }, 'not declared as a read'],
    [
      'whose look-up is declared as a write',
      { operations: { ...workflow.operations, read_refund_status: 'write' } },
      'not declared as a read',
    ],
    ['without a cycle', { limits: { proposal_cycles_max: 0 } }, 'at least one proposal cycle'],
  ])('is refused: one %s', (_, change, why) => {
    expect(() => defineWorkflow({ ...workflow, ...change })).toThrow(why);
  });
  test('that holds together is taken as it is', () => {
    expect(defineWorkflow(workflow)).toBe(workflow);
  });
});

describe('the installed systems', () => {
  const systems = createSystems({
    shop_url: 'http://shop.test',
    payments_url: 'http://pay.test',
    payments_read_key: 'rk',
    payments_write_key: null,
    read_timeout_ms: 1_000,
    http: { get: () => Promise.reject(new Error('not here')) },
  });

  test.each<[string, { workflow: string; workflow_version: number }, string | undefined]>([
    ['the version that a run was created under', { workflow: 'refund', workflow_version: 1 }, 'refund'],
    ['no other version', { workflow: 'refund', workflow_version: 2 }, undefined],
    ['no other name', { workflow: 'payout', workflow_version: 1 }, undefined],
  ])('offer %s', (_, run, name) => {
    expect(workflowOf(systems, run)?.name).toBe(name);
  });

  test('offer every read that the workflow needs and nothing that writes', () => {
    expect(Object.keys(systems.reads).sort()).toEqual([
      'read_customer_order',
      'read_order',
      'read_payment',
      'read_request',
    ]);
  });
});
