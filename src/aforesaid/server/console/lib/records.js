// Change the record of a conversation without overwriting what someone else changed meanwhile.
import { Problem, call, conversationPath, get } from "./api.js";
import { openingOf } from "./content.js";

/** @typedef {Record<string, any>} Conversation */
/** @typedef {Record<string, any>} Changes */
/** @typedef {{ saved?: Conversation, theirs?: Conversation, fields?: string[] }} Outcome */

export const STATUSES = ["open", "pending", "resolved", "closed"];
export const PRIORITIES = ["low", "normal", "high", "urgent"];
export const CHANNELS = ["text", "voice", "phone", "email"];

const ATTEMPTS = 4;

/** A page of records with their first words. @param {any} page */
export const withOpenings = (page) => ({ ...page, conversations: page.conversations.map((/** @type {Conversation} */ each) => ({ ...each, opening: page.openings[each.id] })) });

/** One record with its first words. @param {string} id @param {AbortSignal} [signal] @returns {Promise<Conversation>} */
export async function readRecord(id, signal) {
  const [record, first] = await Promise.all([get(conversationPath(id), {}, signal), get(`${conversationPath(id)}/messages`, { offset: 0, limit: 4 }, signal)]);
  return { ...record, opening: openingOf(first.entries) };
}

/**
 * Save changes. New messages move the revision too, so a refused revision is a conflict only if one of the
 * changed fields differs from what the user saw.
 * @param {Conversation} seen The record that the user edited.
 * @param {Changes} changes
 * @returns {Promise<Outcome>}
 */
export async function saveRecord(seen, changes) {
  let current = seen;
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    try {
      return { saved: await call("PATCH", conversationPath(seen.id), { body: changes, revision: current.revision }) };
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 412) throw error;
      current = await get(conversationPath(seen.id));
      const fields = Object.keys(changes).filter((name) => !same(current[name], seen[name]) && !same(current[name], changes[name]));
      if (fields.length) return { theirs: current, fields };
    }
  }
  throw new Problem(409, { detail: "The conversation changes too often now to save this." });
}

/**
 * What reverts these changes.
 * @param {Conversation} before
 * @param {Changes} changes
 */
export function reversed(before, changes) {
  return Object.fromEntries(Object.keys(changes).map((name) => [name, before[name]?.length === 0 ? null : before[name] ?? null]));
}

/**
 * @param {any} one
 * @param {any} other
 */
function same(one, other) {
  return JSON.stringify(empty(one)) === JSON.stringify(empty(other));
}

/** @param {any} value */
const empty = (value) => (value === null || value === undefined || (Array.isArray(value) && !value.length) ? "" : value);
