import { Paths, type Trace } from './checker.ts';
import type { Model } from './model.ts';
import { showWorld, type World, worldKey } from './state.ts';

export interface LivenessResult {
  states: number;
  seconds: number;
  truncated: boolean;
  /** A way to a state from which the goal need never be reached, and what goes round there. */
  stuck: { trace: Trace; state: string; round: string[] } | null;
}

/**
 * What has to happen at last if it stays possible (weak fairness): time, the sweeper, a request under way, each worker. `null`: what may
 * never happen, such as a crash, a person's act, a broken lease or the release of a hold.
 */
export function fairnessOf(label: string): string | null {
  const [, run = '', what = ''] = /^(run\d )?(.*)$/.exec(label) ?? [];
  if (/^(tick|poll|expire|sweep|closure-audit|reversal-audit)$/.test(what)) return run + what;
  if (/^(request-lost|provider-(applies|rejects|replays|refuses|key|is-busy$))/.test(what)) return `${run}network`;
  const [, worker, act] = /^(worker\d) (.*)$/.exec(what) ?? [];
  if (worker === undefined || act === undefined) return null;
  if (act === 'crash' || act.startsWith('person-') || act === 'connection-gone-before-write') return null;
  return `${run}${worker} ${act.endsWith('-load') ? 'picks up' : 'goes on'}`;
}

/** The reachable states as a graph; edges of state i are `first[i] ≤ e < first[i + 1]`. Class 0 is not fair. */
interface Graph {
  first: number[];
  to: number[];
  fairClass: number[];
  reached: boolean[];
}

/**
 * Whether every fair run reaches the goal from every reachable state: no fair cycle and no dead end outside it. Looks for strongly connected
 * components (Tarjan) outside the goal in which every fair class that is always possible is also taken.
 */
export function checkLiveness(
  model: Model,
  goal: (world: World) => boolean,
  options: { statesMax: number },
): LivenessResult {
  const startedAt = performance.now();
  const ids = new Map([[worldKey(model.initial, false), 0]]);
  const paths = new Paths(model);
  const graph: Graph = { first: [], to: [], fairClass: [], reached: [goal(model.initial)] };
  const classes = new Map<string, number>();
  const classOf = (label: string): number => {
    const name = fairnessOf(label);
    if (name === null) return 0;
    const known = classes.get(name) ?? classes.size + 1;
    classes.set(name, known);
    return known;
  };
  let truncated = false;
  let frontier: [number, World][] = [[0, model.initial]];
  while (frontier.length > 0 && !truncated) {
    const next: [number, World][] = [];
    for (const [from, world] of frontier) {
      graph.first.push(graph.to.length);
      for (const [choice, [label, reached]] of model.moves(world).entries()) {
        const key = worldKey(reached, false);
        let id = ids.get(key);
        if (id === undefined) {
          id = paths.add(from, choice);
          ids.set(key, id);
          graph.reached.push(goal(reached));
          next.push([id, reached]);
        }
        graph.to.push(id);
        graph.fairClass.push(classOf(label));
      }
    }
    frontier = next;
    truncated = ids.size > options.statesMax;
  }
  graph.first.push(graph.to.length);

  let stuckAt = -1;
  let round: Set<number> | undefined;
  for (const component of componentsOutsideGoal(graph)) {
    if (!isFairTrap(graph, component)) continue;
    const earliest = component.reduce((a, b) => Math.min(a, b));
    if (stuckAt === -1 || earliest < stuckAt) {
      stuckAt = earliest;
      round = new Set(component);
    }
  }
  const result = { states: ids.size, truncated, seconds: (performance.now() - startedAt) / 1_000, stuck: null };
  if (round === undefined) return result;
  const { trace, world } = paths.walk(stuckAt);
  const inside = model.moves(world).filter(([, reached]) => round.has(ids.get(worldKey(reached, false)) ?? -1));
  return { ...result, stuck: { trace, state: showWorld(world), round: [...new Set(inside.map(([label]) => label))] } };
}

function componentsOutsideGoal({ first, to, reached }: Graph): number[][] {
  const size = first.length - 1;
  const index = new Int32Array(size).fill(-1);
  const low = new Int32Array(size);
  const onStack = new Uint8Array(size);
  const edge = new Int32Array(size);
  const stack: number[] = [];
  const components: number[][] = [];
  let visited = 0;
  const enter = (v: number) => {
    index[v] = visited;
    low[v] = visited;
    visited += 1;
    stack.push(v);
    onStack[v] = 1;
    edge[v] = first[v] ?? 0;
  };
  for (let root = 0; root < size; root++) {
    if (index[root] !== -1 || reached[root] === true) continue;
    const path = [root];
    enter(root);
    for (let v = path.at(-1); v !== undefined; v = path.at(-1)) {
      if ((edge[v] ?? 0) < (first[v + 1] ?? 0)) {
        const u = to[edge[v] ?? 0] ?? 0;
        edge[v] = (edge[v] ?? 0) + 1;
        if (u >= size || reached[u] === true) continue;
        if (index[u] === -1) {
          path.push(u);
          enter(u);
        } else if (onStack[u] === 1) low[v] = Math.min(low[v] ?? 0, index[u] ?? 0);
        continue;
      }
      path.pop();
      const above = path.at(-1);
      if (above !== undefined) low[above] = Math.min(low[above] ?? 0, low[v] ?? 0);
      if (low[v] !== index[v]) continue;
      const component = stack.splice(stack.lastIndexOf(v));
      for (const member of component) onStack[member] = 0;
      components.push(component);
    }
  }
  return components;
}

/** Whether a run may stay in a component for good: a dead end, or a cycle that leaves out nothing which is always possible. */
function isFairTrap({ first, to, fairClass, reached }: Graph, component: readonly number[]): boolean {
  const members = new Set(component);
  const taken = new Set<number>();
  let always: Set<number> | undefined;
  let edges = 0;
  let cycles = false;
  for (const v of component) {
    const possible = new Set<number>();
    for (let e = first[v] ?? 0; e < (first[v + 1] ?? 0); e++) {
      edges += 1;
      const fair = fairClass[e] ?? 0;
      if (fair !== 0) possible.add(fair);
      const u = to[e] ?? 0;
      if (reached[u] === true || !members.has(u)) continue;
      cycles = true;
      if (fair !== 0) taken.add(fair);
    }
    const before = always;
    always = before === undefined ? possible : new Set([...before].filter((fair) => possible.has(fair)));
  }
  if (!cycles) return edges === 0;
  return [...(always ?? [])].every((fair) => taken.has(fair));
}
