export { runVerifier } from './main.ts';
