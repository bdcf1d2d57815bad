import type { Config } from 'drizzle-kit';

export const config: Config = {
  dialect: 'postgresql',
  schema: './src/schema.ts',
  out: './migrations',
  schemaFilter: ['cs'],
};
// drizzle-kit reads a default export and nothing else.
export default config;
