export { type Lane, STAGES, type Stage } from '@counterstamp/manifest-core';
