export { environment, parseConfig } from './config.ts';
export { runReconciler } from './main.ts';
