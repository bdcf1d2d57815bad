import { randomBytes } from 'node:crypto';
import { ID_PREFIXES, type Ids } from '@counterstamp/manifest-core';
import { v7 } from 'uuid';

/** Random identifiers: UUIDv7, so that they sort by the time they were made. */
export const randomIds: Ids = {
  uuid: () => v7(),
  id: (kind) => `${ID_PREFIXES[kind]}_${v7()}`,
  salt: () => randomBytes(16).toString('hex'),
};
