// Numbers of a period as rows and lines: what the server counts, in the words of a manager.
import { number, percent, span } from "./format.js";

/** @typedef {{ unit: string, count: number, p50: number, p75: number, p90: number, p95: number, p99: number, buckets: { below: number | null, count: number }[] }} Distribution */
/** @typedef {{ value: string | null, counts: Record<string, number>, shares: Record<string, number>, distributions: Record<string, Distribution>, tools: Record<string, { calls: number, errors: number }> }} Numbers */
/** @typedef {{ first_day: string, last_day: string, by: string | null, total: Numbers, groups: Numbers[], counted_at: string }} Report */

export const PERIODS = /** @type {[string, string][]} */ ([["7", "Last 7 days"], ["30", "Last 30 days"], ["90", "Last 90 days"], ["365", "Last year"]]);
export const GROUPS = /** @type {[string, string][]} */ ([["channel", "Channel"], ["client", "Client"], ["agent", "Agent"]]);

/** The distributions in the order of the page, with what each one measures. */
export const MEASURES = /** @type {[string, string][]} */ ([
  ["first_response", "First response"], ["first_response_by_person", "First response by a person"], ["reply_time", "Reply time"],
  ["time_to_assignment", "Time to assignment"], ["time_to_first_close", "Time to first close"], ["time_to_last_close", "Time to last close"],
  ["messages", "Messages per conversation"], ["turns", "Turns per conversation"], ["tokens", "Tokens per conversation"], ["duration", "Duration of a conversation"],
  ["tool_time", "Time of a tool call"], ["heard", "Heard of a spoken answer"], ["confidence", "Confidence of transcription"],
  ["request_tokens", "Tokens of a request"], ["left_out", "Left out of a request"], ["summary", "Summary in a request"], ["stable_prefix", "Stable prefix of a request"], ["search_hits", "Results of a search"],
]);

/** The shares of requests and searches, with what each one measures. */
export const SHARES = /** @type {[string, string][]} */ ([
  ["left_out", "Messages left out of requests"], ["summary", "Tokens of requests that are summary"], ["stable_prefix", "Messages in stable prefixes"],
  ["requests_with_notes", "Requests with notes"], ["searches_without_result", "Searches without a result"], ["quoted_searches", "Searches quoted in the answer"],
]);

/** @param {Date} now @param {number} days */
export function firstDay(now, days) {
  return `${new Date(now.getTime() - (days - 1) * 86_400_000).toISOString().slice(0, 10)}T00:00:00Z`;
}

/** @param {Numbers} numbers @param {string} name @param {"p50" | "p75" | "p90" | "p95" | "p99"} part */
export function percentile(numbers, name, part) {
  return numbers.distributions[name]?.[part] ?? null;
}

/** @param {string} unit @param {number | null} value */
export function measured(unit, value) {
  if (value === null) return "–";
  if (unit === "ms") return span(value);
  return unit === "percent" ? `${value} %` : number(value);
}

/** @param {number | undefined} value */
export const share = (value) => (value === undefined ? "–" : percent(value));

/** Every day of the period, with the numbers of the days that have some. @param {Report} report */
export function byDay(report) {
  const known = new Map(report.groups.map((each) => [each.value, each]));
  const days = [];
  for (let day = Date.parse(report.first_day); day <= Date.parse(report.last_day); day += 86_400_000) {
    const name = new Date(day).toISOString().slice(0, 10);
    // The chart's axis is in local time: midnight there keeps the name of the day.
    days.push({ time: new Date(`${name}T00:00`).getTime() / 1000, numbers: known.get(name) ?? null });
  }
  return days;
}

/**
 * Names and counts of buckets, without empty ones at both ends.
 * @param {Distribution} distribution
 */
export function bucketsOf({ unit, buckets }) {
  const names = buckets.map((bucket, index) => bucketName(unit, index ? buckets[index - 1].below : null, bucket.below));
  const filled = buckets.flatMap((bucket, index) => (bucket.count ? [index] : []));
  const [start, end] = [Math.max(0, filled[0] - 1), Math.min(buckets.length, filled[filled.length - 1] + 2)];
  return { names: names.slice(start, end), counts: buckets.slice(start, end).map((bucket) => bucket.count) };
}

/** @param {string} unit @param {number | null} from @param {number | null} to */
function bucketName(unit, from, to) {
  if (to === null) return `${edge(unit, from)} or more`;
  return from === null ? `under ${edge(unit, to)}` : `${edge(unit, from)} to ${edge(unit, to)}`;
}

/** An edge of a bucket is a round number. @param {string} unit @param {number | null} value */
function edge(unit, value) {
  const at = value ?? 0;
  if (unit === "ms" && at < 60_000) return `${at / 1000} s`;
  return measured(unit, at);
}
