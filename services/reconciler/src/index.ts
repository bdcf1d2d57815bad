export { runReconciler } from './main.ts';
