const MINTING = new URL('minting-connectors.mjs', import.meta.url).href;

/** Gives everybody but the stand-in itself the stand-in for the connectors. @type {import('node:module').ResolveHook} */
export async function resolve(specifier, context, nextResolve) {
  return specifier === '@counterstamp/connectors' && context.parentURL !== MINTING
    ? { url: MINTING, shortCircuit: true }
    : await nextResolve(specifier, context);
}
