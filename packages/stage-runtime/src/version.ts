/** The release that all packages of the product carry; `npm run release:version` sets it. */
export const VERSION = '0.1.0';
