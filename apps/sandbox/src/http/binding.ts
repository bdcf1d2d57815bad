import type { HttpBindings } from '@hono/node-server';
import type { Context } from 'hono';

/** What every route gets from the Node adapter: the raw request and response, needed for exact bytes and for cuts. */
export interface NodeBinding {
  Bindings: HttpBindings;
}

export type NodeContext = Context<NodeBinding>;
