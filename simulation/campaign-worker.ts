import { parentPort, workerData } from 'node:worker_threads';
import { runShare, type Share } from './campaign.ts';

// Started by main.ts with one share of the seeds.
parentPort?.postMessage(await runShare(workerData as Share));
