import { randomBytes, randomUUID } from 'node:crypto';
import { ID_PREFIXES, type Ids } from '@counterstamp/manifest-core';

export const testIds: Ids = {
  uuid: () => randomUUID(),
  id: (kind) => `${ID_PREFIXES[kind]}_${randomUUID()}`,
  salt: () => randomBytes(16).toString('hex'),
};
