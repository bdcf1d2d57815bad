export { environment, parseConfig } from './config.ts';
export { runPreflight } from './main.ts';
