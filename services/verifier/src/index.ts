export { environment, parseConfig } from './config.ts';
export { runVerifier } from './main.ts';
