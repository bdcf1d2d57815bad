/** Runs of one tenant in line, up to which one more hint goes into the lane of this index; what is above the last goes behind all of them. */
const LANE_ENDS = [16, 64, 256, 1_024] as const;

/**
 * In which order a stage takes hints: all of a lower lane before any of a higher one, and within a lane as they came. The lane of a hint says how
 * many runs of its tenant are in line, and nothing else of the tenant: who has few in line is not kept waiting by who has many.
 */
export type Lane = 0 | 1 | 2 | 3 | 4;

/** The lane of a hint. `tenantInLine`: runs of its tenant that the fleet has to carry on now, itself included. */
export function laneOf(tenantInLine: number): Lane {
  const lane = LANE_ENDS.findIndex((end) => tenantInLine <= end);
  return lane === -1 ? LANE_ENDS.length : (lane as Lane);
}
