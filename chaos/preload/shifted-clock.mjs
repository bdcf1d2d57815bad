// Preloaded into a process (NODE_OPTIONS=--import): its wall clock, and nothing else, is off by CHAOS_CLOCK_SHIFT_MS milliseconds.
const shiftMs = Number(process.env.CHAOS_CLOCK_SHIFT_MS ?? '0');
const RealDate = globalThis.Date;

globalThis.Date = class ShiftedDate extends RealDate {
  /** @param {ConstructorParameters<typeof RealDate>} args */
  constructor(...args) {
    if (args.length === 0) super(RealDate.now() + shiftMs);
    else super(...args);
  }

  static now() {
    return RealDate.now() + shiftMs;
  }
};
