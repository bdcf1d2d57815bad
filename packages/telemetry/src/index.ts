export { createLogger, type Logger } from './logger.ts';
export { type CensusLine, createMetrics, type Metrics } from './metrics.ts';
