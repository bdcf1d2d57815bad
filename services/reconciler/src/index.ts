export { environment, parseConfig } from './config.ts';
export { runReconciler } from './main.ts';
export {
  type BookedEffect,
  checkRestored,
  type RestoreFinding,
  type RestoreQuestion,
  type RestoreReport,
} from './restore-check.ts';
