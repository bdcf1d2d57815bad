export { runExecutor } from './main.ts';
