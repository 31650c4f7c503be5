// The reading order of a log: by time, then by sequence, as on the server.

/** @typedef {Record<string, any>} Entry */

/** @type {WeakMap<Entry, number>} */
const known = new WeakMap();

/** The time of an entry in microseconds. `Date` would drop the last three digits. @param {Entry} entry */
export function microsOf(entry) {
  let micros = known.get(entry);
  if (micros === undefined) {
    const [, seconds, fraction = "", zone = "Z"] = /^([^.Z+]+?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?$/.exec(entry.message.timestamp) ?? [];
    micros = Date.parse(seconds + zone) * 1000 + Number(fraction.padEnd(6, "0").slice(0, 6));
    known.set(entry, micros);
  }
  return micros;
}

/** @param {Entry} one @param {Entry} other */
export const inOrder = (one, other) => microsOf(one) - microsOf(other) || one.sequence - other.sequence;

/** The cursor of the messages before an entry. @param {Entry} entry */
export const cursorBefore = (entry) => `${microsOf(entry)}:${entry.sequence}`;
