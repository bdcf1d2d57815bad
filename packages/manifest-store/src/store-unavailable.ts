/** The database did not answer, or the connection broke. During a commit the outcome is unknown: reload before acting. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}
