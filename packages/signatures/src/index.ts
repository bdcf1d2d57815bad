export { parseCanonicalRecord } from './canonical-record.ts';
export {
  type CredentialFault,
  CredentialRecord,
  certifyCredential,
  type VerifiedCredential,
  verifyCredential,
} from './credential.ts';
export {
  DECISIONS,
  DecisionPreImage,
  decisionChallenge,
  decisionChallengeText,
  decisionPreImage,
  parseDecisionPreImage,
  reasonDigest,
} from './decision-pre-image.ts';
export { Envelope, type EnvelopeFault, type OpenedEnvelope, openEnvelope, sealEnvelope } from './envelope.ts';
export {
  generateSigningKey,
  KEY_PURPOSES,
  type KeyPurpose,
  type PublicJwk,
  parseSigningKey,
  parseTrustedKeys,
  publicJwk,
  type SigningKey,
  type TrustedJwk,
  type TrustedKeys,
  trustedKeysText,
} from './keys.ts';
export {
  DECISION_FAULTS,
  type DecisionFault,
  type DecisionTrust,
  type DecisionVerdict,
  type ExpectedDecision,
  SignedDecision,
  verifySignedDecision,
} from './signed-decision.ts';
