import { DEADLINES } from './deadlines.ts';
import { PEOPLE_DECIDE } from './people-decide.ts';
import { PERFORMED } from './performed.ts';
import type { ScenarioGroup } from './scenario.ts';
import { SEVERAL_RUNS } from './several-runs.ts';
import { STOPS_EARLY } from './stops-early.ts';
import { UNCERTAIN } from './uncertain.ts';

/** The whole tour, in the order in which it is told. */
export const GROUPS: readonly ScenarioGroup[] = [
  PERFORMED,
  STOPS_EARLY,
  PEOPLE_DECIDE,
  UNCERTAIN,
  DEADLINES,
  SEVERAL_RUNS,
];
