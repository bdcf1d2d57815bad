export { type Api, createApp } from './app.ts';
export { type Action, MAY } from './authentication.ts';
export { environment, parseConfig } from './config.ts';
export type { ApiDeps, ApiLog, ObservedRequest } from './deps.ts';
export { runApi } from './main.ts';
export type { WorkflowDoor } from './workflow-door.ts';
