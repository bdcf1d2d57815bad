export { environment, parseConfig } from './config.ts';
export { runExecutor } from './main.ts';
