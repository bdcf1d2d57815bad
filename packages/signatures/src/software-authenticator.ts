import { createECDH, createHash, createPrivateKey, type KeyObject, randomBytes, sign } from 'node:crypto';
import type {
  AuthenticationResponseJSON,
  PublicKeyCredentialCreationOptionsJSON,
  PublicKeyCredentialRequestOptionsJSON,
  RegistrationResponseJSON,
} from '@simplewebauthn/server';
import { cose, isoCBOR } from '@simplewebauthn/server/helpers';

/** What a test lets the authenticator or its browser do wrong. */
export interface Misbehaviour {
  userVerified?: boolean;
  /** The site that the browser says it was on. */
  origin?: string;
  /** What the authenticator says of how often it signed; 0, as synced passkeys say, unless told otherwise. */
  counter?: number;
  /** The ceremony that the browser says it performed. */
  type?: string;
  /** The browser says that the page was framed by another site. */
  crossOrigin?: boolean;
}

export interface SoftwareAuthenticatorOptions {
  /** Origin that the browser is on, `https://host[:port]`. */
  origin: string;
  /** That many random bytes, for ids and private keys; the system's unless a test wants the same ones again. */
  random?: (length: number) => Uint8Array;
}

export interface SoftwareAuthenticator {
  /** Makes a new passkey, ES256 without attestation. */
  register(
    options: PublicKeyCredentialCreationOptionsJSON,
    misbehaviour?: Misbehaviour,
  ): Promise<RegistrationResponseJSON>;
  /**
   * Signs with the first of its passkeys that the options allow.
   * @throws {RangeError} when it holds none of them.
   */
  authenticate(
    options: PublicKeyCredentialRequestOptionsJSON,
    misbehaviour?: Misbehaviour,
  ): Promise<AuthenticationResponseJSON>;
}

/** Bits of the flags in authenticator data (WebAuthn 6.1). */
const USER_PRESENT = 0x01;
const USER_VERIFIED = 0x04;
const ATTESTED_CREDENTIAL_DATA = 0x40;

/** Bytes of a credential id and of a P-256 private key. */
const CREDENTIAL_ID_BYTES = 16;
const PRIVATE_KEY_BYTES = 32;

/**
 * A passkey in software, browser included, for tests and the demonstration tour. It protects nothing: no person touches it, it says "user
 * verified" of nobody, and its private keys lie in the memory of the process.
 */
export function createSoftwareAuthenticator({
  origin,
  random = randomBytes,
}: SoftwareAuthenticatorOptions): SoftwareAuthenticator {
  const passkeys = new Map<string, KeyObject>();
  return {
    async register(options, misbehaviour = {}) {
      const id = Buffer.from(random(CREDENTIAL_ID_BYTES));
      const { privateKey, coseKey } = newKey(random(PRIVATE_KEY_BYTES));
      passkeys.set(id.toString('base64url'), privateKey);
      const rpId = options.rp.id ?? new URL(origin).hostname;
      const idLength = Buffer.alloc(2);
      idLength.writeUInt16BE(id.byteLength);
      const aaguid = Buffer.alloc(16);
      const authenticatorData = Buffer.concat([
        authenticatorDataOf(rpId, ATTESTED_CREDENTIAL_DATA, misbehaviour),
        ...[aaguid, idLength, id, coseKey],
      ]);
      const attestation = isoCBOR.encode(
        new Map<string, string | Map<string, string> | Uint8Array>([
          ['fmt', 'none'],
          ['attStmt', new Map<string, string>()],
          ['authData', new Uint8Array(authenticatorData)],
        ]),
      );
      return {
        ...credential(id.toString('base64url')),
        response: {
          clientDataJSON: clientData('webauthn.create', options.challenge, origin, misbehaviour).toString('base64url'),
          attestationObject: Buffer.from(attestation).toString('base64url'),
          transports: ['internal'],
        },
      };
    },
    async authenticate(options, misbehaviour = {}) {
      const allowed = options.allowCredentials?.map(({ id }) => id) ?? [];
      const found = [...passkeys].find(([id]) => allowed.length === 0 || allowed.includes(id));
      if (found === undefined) throw new RangeError('the software authenticator holds none of the allowed passkeys');
      const [id, privateKey] = found;
      const authenticatorData = authenticatorDataOf(options.rpId ?? new URL(origin).hostname, 0, misbehaviour);
      const client = clientData('webauthn.get', options.challenge, origin, misbehaviour);
      const signed = Buffer.concat([authenticatorData, createHash('sha256').update(client).digest()]);
      return {
        ...credential(id),
        response: {
          clientDataJSON: client.toString('base64url'),
          authenticatorData: authenticatorData.toString('base64url'),
          signature: sign('sha256', signed, privateKey).toString('base64url'),
        },
      };
    },
  };
}

/** The members that a registration and an assertion share. */
function credential(id: string) {
  return {
    id,
    rawId: id,
    type: 'public-key',
    authenticatorAttachment: 'platform',
    clientExtensionResults: {},
  } as const;
}

function newKey(privateBytes: Uint8Array): { privateKey: KeyObject; coseKey: Uint8Array } {
  const ecdh = createECDH('prime256v1');
  ecdh.setPrivateKey(privateBytes);
  // The uncompressed point: 0x04, then 32 bytes each of x and y.
  const point = ecdh.getPublicKey();
  const x = point.subarray(1, 33);
  const y = point.subarray(33);
  const jwk = {
    kty: 'EC',
    crv: 'P-256',
    d: Buffer.from(privateBytes).toString('base64url'),
    x: x.toString('base64url'),
    y: y.toString('base64url'),
  };
  const coseKey = isoCBOR.encode(
    new Map<number, number | Uint8Array>([
      [cose.COSEKEYS.kty, cose.COSEKTY.EC2],
      [cose.COSEKEYS.alg, cose.COSEALG.ES256],
      [cose.COSEKEYS.crv, cose.COSECRV.P256],
      [cose.COSEKEYS.x, new Uint8Array(x)],
      [cose.COSEKEYS.y, new Uint8Array(y)],
    ]),
  );
  return { privateKey: createPrivateKey({ key: jwk, format: 'jwk' }), coseKey };
}

/** Hash of the relying party's id, flags and counter: the 37 bytes that every authenticator data starts with. */
function authenticatorDataOf(rpId: string, more: number, { userVerified = true, counter = 0 }: Misbehaviour): Buffer {
  const flags = USER_PRESENT | (userVerified ? USER_VERIFIED : 0) | more;
  const tail = Buffer.alloc(5);
  tail.writeUInt8(flags);
  tail.writeUInt32BE(counter, 1);
  return Buffer.concat([createHash('sha256').update(rpId, 'utf8').digest(), tail]);
}

/** What a browser says of the ceremony, as it serializes it. */
function clientData(
  ceremony: string,
  challenge: string,
  origin: string,
  { type = ceremony, origin: shownOrigin = origin, crossOrigin = false }: Misbehaviour,
): Buffer {
  return Buffer.from(JSON.stringify({ type, challenge, origin: shownOrigin, crossOrigin }));
}
