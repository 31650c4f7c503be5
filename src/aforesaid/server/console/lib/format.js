// Times, numbers and words for people, in the browser's language and time zone.

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const dayAndYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const short = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const numbers = new Intl.NumberFormat();

/** @param {string | null | undefined} iso */
export function ago(iso, now = Date.now()) {
  if (!iso) return "";
  const at = new Date(iso), seconds = (at.getTime() - now) / 1000, size = Math.abs(seconds);
  if (size < 45) return "just now";
  if (size < HOUR) return relative.format(Math.round(seconds / MINUTE), "minute");
  if (size < 22 * HOUR) return relative.format(Math.round(seconds / HOUR), "hour");
  if (size < 7 * DAY) return relative.format(Math.round(seconds / DAY), "day");
  return shortDate(iso, now);
}

/** @param {string} iso */
export function shortDate(iso, now = Date.now()) {
  const at = new Date(iso);
  return (at.getFullYear() === new Date(now).getFullYear() ? day : dayAndYear).format(at);
}

/** @param {string} iso */
export const timeOfDay = (iso) => clock.format(new Date(iso));

/** @param {string} iso */
export const fullTime = (iso) => whole.format(new Date(iso));

/** A time in a table. @param {string} iso */
export const shortTime = (iso) => short.format(new Date(iso));

/** @param {number} value */
export const number = (value) => numbers.format(value);

/**
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "forever";
  for (const [size, unit] of /** @type {[number, string][]} */ ([[365 * DAY, "year"], [DAY, "day"], [HOUR, "hour"], [MINUTE, "minute"]])) {
    if (seconds >= size) return plural(Math.round(seconds / size), unit);
  }
  return plural(Math.round(seconds), "second");
}

/** @param {number} seconds */
export function latency(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  return `${Number(seconds.toFixed(seconds < 10 ? 2 : 0))} s`;
}

/** A time span of reports, given in milliseconds: two parts at most. @param {number} milliseconds */
export function span(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 59_500) return `${Number((milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0))} s`;
  const minutes = Math.round(milliseconds / 60_000);
  if (minutes < 60) return `${minutes} min`;
  const hours = milliseconds / 3_600_000;
  if (hours < 24) return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  return `${Number((hours / 24).toFixed(1)).toLocaleString()} d`;
}

/** @param {number} share From 0 to 1. */
export const percent = (share) => `${Math.round(share * 100)} %`;

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KB", "MB", "GB"];
  let value = bytes, unit = 0;
  while (value >= 1000 && unit < 3) [value, unit] = [value / 1000, unit + 1];
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/**
 * The title of a conversation: its subject, its first words (`opening`), or what else is known.
 * @param {Record<string, any>} record
 */
export function titleOf(record) {
  return record.subject || record.name || record.opening || record.client_name || (record.message_count === 0 ? "New conversation" : `Conversation of ${shortDate(record.created_at)}`);
}

/** @param {string} text */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
