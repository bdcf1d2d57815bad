export { STAGES, type Stage } from '@counterstamp/manifest-core';
