// Parts of a log that lie further back than the newest page.
import { conversationPath, get } from "./api.js";

/**
 * The end of the log back to the oldest of these messages; the whole log if one is missing.
 * @param {string} id
 * @param {{ ids?: string[], sequences?: number[] }} wanted
 * @param {AbortSignal} [signal]
 * @returns {Promise<Record<string, any>[]>}
 */
export async function endOfLog(id, { ids = [], sequences = [] }, signal) {
  const missing = new Set(/** @type {(string | number)[]} */ ([...ids, ...sequences]));
  let entries = /** @type {any[]} */ ([]), cursor = "latest";
  do {
    const page = await get(`${conversationPath(id)}/messages`, { before: cursor, limit: 1000 }, signal);
    for (const entry of page.entries) {
      missing.delete(entry.message.message_id);
      missing.delete(entry.sequence);
    }
    entries = [...page.entries, ...entries];
    cursor = page.next;
  } while (missing.size && cursor);
  return entries;
}
