// Preloaded into a fleet (NODE_OPTIONS=--import): the payments connector mints a random idempotency key per call, as a careless one would.
import { register } from 'node:module';

register('./random-key-hooks.mjs', import.meta.url);
