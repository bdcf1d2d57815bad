export { runPreflight } from './main.ts';
