// Participants of a conversation: names, the one as whom this tab writes, changes without overwriting.
import { Problem, call, conversationPath, get } from "./api.js";
import { session } from "./session.js";

/** @typedef {{ id: string, name?: string | null, kind?: "person" | "agent", role?: "manager" | "member" | "guest" | "left", may_write?: boolean, joined_at?: string | null }} Participant */

export const ROLES = /** @type {[string, string][]} */ ([["manager", "Manager"], ["member", "Member"], ["guest", "Guest"], ["left", "Left"]]);
export const KINDS = /** @type {[string, string][]} */ ([["person", "Person"], ["agent", "Agent"]]);
export const RULES = /** @type {[string, string][]} */ ([["all", "All messages"], ["mentions", "Mentions only"], ["none", "Nothing"]]);

const ATTEMPTS = 4;

/** @param {Participant} participant */
export const nameOf = (participant) => participant.name || participant.id;

/** @param {Participant[]} participants @param {string | null | undefined} id */
export function nameById(participants, id) {
  const found = participants.find((each) => each.id === id);
  return found ? nameOf(found) : id ?? "";
}

/** @param {string} name */
export const initials = (name) => name.split(/\s+/).map((word) => [...word][0] ?? "").slice(0, 2).join("").toUpperCase();

const ACTING = "aforesaid.acting";

/** The participant as whom this tab writes in a conversation: that of the key, or a chosen one. @param {string} conversation @returns {Participant | null} */
export function actingIn(conversation) {
  if (session.access?.participant) return { id: session.access.participant };
  return JSON.parse(sessionStorage.getItem(ACTING) ?? "{}")[conversation] ?? null;
}

/** @param {string} conversation @param {Participant | null} participant */
export function actIn(conversation, participant) {
  const all = JSON.parse(sessionStorage.getItem(ACTING) ?? "{}");
  if (participant) all[conversation] = { id: participant.id, name: participant.name };
  else delete all[conversation];
  sessionStorage.setItem(ACTING, JSON.stringify(all));
}

/** Whether a participant's role lets them write. @param {Participant | undefined} participant */
export const mayWriteAs = (participant) => !participant || !(participant.role === "left" || (participant.role === "guest" && !participant.may_write));

/**
 * Add or change a participant. Messages move the revision too, so a refused revision is a conflict only if the
 * participant differs from what the user saw. Returns the participant of the other change, if there was one.
 * @param {Record<string, any>} record
 * @param {string} id
 * @param {Record<string, any>} changes
 * @returns {Promise<Participant | null>}
 */
export async function saveParticipant(record, id, changes) {
  const seen = of(record, id);
  let current = record;
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    try {
      await call("PUT", participantPath(record.id, id), { body: changes, revision: current.revision });
      return null;
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 412) throw error;
      current = await get(conversationPath(record.id));
      if (JSON.stringify(of(current, id)) !== JSON.stringify(seen)) return of(current, id) ?? { id, role: "left" };
    }
  }
  throw new Problem(409, { detail: "The conversation changes too often now to save this." });
}

/** @param {string} conversation @param {string} id */
export const participantPath = (conversation, id) => `${conversationPath(conversation)}/participants/${encodeURIComponent(id)}`;

/** @param {Record<string, any>} record @param {string} id @returns {Participant | undefined} */
const of = (record, id) => (record.participants ?? []).find((/** @type {Participant} */ each) => each.id === id);
