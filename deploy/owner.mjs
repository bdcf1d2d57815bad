// `counterstamp …` as the owner of the database, inside a container: DATABASE_URL and COUNTERSTAMP_SECRET come from files
// (DATABASE_URL_FILE, COUNTERSTAMP_SECRET_FILE). Services need no such step; their configuration reads the files itself.
import { EXIT_CONFIG, withSecretFiles } from '@counterstamp/stage-runtime';

const { env, faults } = withSecretFiles(process.env);
if (faults.length > 0) {
  process.stderr.write(`configuration:\n${faults.map((fault) => `  - ${fault}`).join('\n')}\n`);
  process.exit(EXIT_CONFIG);
}
for (const name of Object.keys(process.env)) if (env[name] === undefined) delete process.env[name];
Object.assign(process.env, env);
await import('../apps/cli/bin/counterstamp.mjs');
