import { Simulation } from './simulation.ts';
const r = await new Simulation({ seed: 22817 }).run();
console.log(r.trace.slice(-160).join('\n')); console.log(r.violation, r.provider, r.outcomes, r.counts.steps);
