export { type Api, createApp } from './app.ts';
export { type Action, MAY } from './caller.ts';
export { environment, parseConfig } from './config.ts';
export type { ApiDeps, ApiLog, ObservedRequest } from './deps.ts';
export { runApi } from './main.ts';
export type { SignIn } from './sign-in.ts';
export type { WorkflowDoor } from './workflow-door.ts';
