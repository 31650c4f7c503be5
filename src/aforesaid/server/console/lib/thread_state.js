// What a thread shows, as a pure function of frames: stored entries, questions in progress, who is typing.
import { openingOf } from "./content.js";
import { inOrder } from "./positions.js";

/** @typedef {Record<string, any>} Entry */
/** @typedef {{ id: string, question: string, text: string, state: "sending" | "answering" | "failed", problem?: string, spoken?: boolean }} Pending */
/** @typedef {{ role: string, name: string }} Typist */
/**
 * @typedef {object} ThreadState
 * @property {Record<string, any> | null} record
 * @property {Entry[]} entries Oldest first.
 * @property {string | null} older The cursor of older messages.
 * @property {boolean} hasOlder Whether the log has entries before the loaded ones.
 * @property {Pending[]} pending
 * @property {Typist[]} typing
 * @property {import("../parts/people.js").Present[]} present Who watches the conversation, and who was here.
 * @property {Record<string, string>} markers The last message that each participant has read.
 * @property {string[]} answering Questions that are being answered now, here or in another browser.
 * @property {boolean} gone
 * @property {Record<string, any>[]} open Turns without an answer.
 */

/** Entries kept on the page. Older ones load again when the user scrolls up. */
export const MOST = 1500;

/** @type {ThreadState} */
export const EMPTY = { record: null, entries: [], older: null, hasOlder: false, pending: [], typing: [], present: [], markers: {}, answering: [], gone: false, open: [] };

/**
 * @param {ThreadState} state
 * @param {Record<string, any>} frame
 * @returns {ThreadState}
 */
export function reduceFrame(state, frame) {
  const act = FRAMES[frame.type];
  return act ? act(state, frame) : state;
}

/** @type {Record<string, (state: ThreadState, frame: Record<string, any>) => ThreadState>} */
const FRAMES = {
  ready: (state, frame) => {
    const entries = frame.entries ?? [];
    const fresh = frame.resumed ? state : { ...state, hasOlder: frame.conversation.message_count > entries.length };
    return { ...merge(fresh, entries), record: frame.conversation, typing: [] };
  },
  messages: (state, frame) => merge(state, frame.entries),
  changed: (state, frame) => merge(state, frame.entries),
  conversation: (state, frame) => ({ ...state, record: { ...frame.conversation, opening: state.record?.opening } }),
  reset: (state, frame) => ({ ...merge({ ...state, entries: [], older: null, hasOlder: frame.conversation.message_count > frame.entries.length }, frame.entries), record: frame.conversation }),
  gone: (state) => ({ ...state, gone: true }),
  transcript: (state, frame) => patch(state, frame.id, { question: frame.text, spoken: true, state: "answering" }),
  "answer.delta": (state, frame) => {
    const before = frame.offset ? state.pending.find((each) => each.id === frame.id)?.text ?? "" : "";
    return patch(state, frame.id, { text: before + frame.text, state: "answering" });
  },
  "answer.done": (state, frame) => (frame.stored === false
    ? patch(state, frame.id, { text: frame.text, state: "answering" })
    : settle(merge(state, frame.entries ?? []), frame.id)),
  "answer.failed": (state, frame) => patch(state, frame.id, { state: "failed", problem: frame.apology || frame.problem?.detail }),
  error: (state, frame) => (frame.id ? patch(state, frame.id, { state: "failed", problem: frame.problem?.detail }) : state),
  presence: (state, frame) => ({ ...state, present: frame.people ?? [], answering: frame.answering ?? [] }),
  read: (state, frame) => ({ ...state, markers: { ...state.markers, [frame.participant_id]: frame.message_id } }),
  typing: (state, frame) => {
    const others = state.typing.filter((each) => each.role !== frame.role || each.name !== (frame.name ?? ""));
    return { ...state, typing: frame.active ? [...others, { role: frame.role, name: frame.name ?? "" }] : others };
  },
};

/**
 * Add entries in the order of the log, each once; the latest content of an entry wins.
 * @param {ThreadState} state
 * @param {Entry[]} entries
 * @returns {ThreadState}
 */
export function merge(state, entries) {
  if (!entries.length) return state;
  const last = state.entries.at(-1);
  let all;
  if (entries.every((entry, index) => !index && !last ? true : inOrder(index ? entries[index - 1] : /** @type {Entry} */ (last), entry) < 0)) all = [...state.entries, ...entries];
  else {
    const known = new Map(state.entries.map((entry) => [entry.sequence, entry]));
    const first = state.entries[0];
    // An entry before the loaded part appears when the user loads that part.
    for (const entry of entries) if (!state.hasOlder || known.has(entry.sequence) || inOrder(first, entry) < 0) known.set(entry.sequence, entry);
    all = [...known.values()].sort(inOrder);
  }
  const stored = new Set(entries.map((entry) => entry.message.message_id));
  const over = Math.max(0, all.length - MOST - 200);
  return {
    ...state,
    entries: over ? all.slice(over + 200) : all,
    ...(over ? { older: null, hasOlder: true } : {}),
    pending: state.pending.filter((each) => !(stored.has(each.id) && each.state === "failed")),
    open: state.open.filter((each) => !stored.has(each.id)),
  };
}

/**
 * Put older entries before the others.
 * @param {ThreadState} state
 * @param {Entry[]} entries
 * @param {string | null} older
 * @returns {ThreadState}
 */
export function prepend(state, entries, older) {
  const first = state.entries[0];
  const before = first ? entries.filter((entry) => inOrder(entry, first) < 0) : entries;
  return { ...state, entries: [...before, ...state.entries], older, hasOlder: older !== null };
}

/**
 * @param {ThreadState} state
 * @param {string} id
 * @param {string} question
 * @returns {ThreadState}
 */
export function asked(state, id, question, spoken = false) {
  const others = state.pending.filter((each) => each.id !== id);
  return { ...state, pending: [...others, { id, question, text: "", state: "sending", spoken }] };
}

/** @param {ThreadState} state @param {string} id @returns {ThreadState} */
export function settle(state, id) {
  return { ...state, pending: state.pending.filter((each) => each.id !== id) };
}

/**
 * Show turns without an answer. The list may be older than the frames: a turn that was stored since is answered.
 * @param {ThreadState} state
 * @param {Record<string, any>[]} turns
 * @returns {ThreadState}
 */
export function withOpenTurns(state, turns) {
  const known = new Set([...state.pending.map((each) => each.id), ...state.entries.map((entry) => entry.message.message_id)]);
  return { ...state, open: turns.filter((turn) => !known.has(turn.id)) };
}

/**
 * The record with what new messages change in it: the server sends a record only when something else changes.
 * @param {ThreadState} state
 */
export function currentRecord({ record, entries, hasOlder }) {
  if (!record) return null;
  const last = entries.at(-1);
  const opening = hasOlder ? record.opening : openingOf(entries);
  return { ...record, opening, message_count: hasOlder ? record.message_count : entries.length, last_message_at: last?.stored_at ?? record.last_message_at };
}

/**
 * Questions that another browser asked and whose words this page does not have yet.
 * @param {ThreadState} state
 */
export function unseenQuestions(state) {
  const known = new Set([...state.pending, ...state.open].map((each) => each.id));
  for (const entry of state.entries) known.add(entry.message.message_id);
  return state.answering.filter((id) => !known.has(id));
}

/** @param {ThreadState} state @param {string} id @param {Partial<Pending>} change @returns {ThreadState} */
function patch(state, id, change) {
  const known = state.pending.some((each) => each.id === id);
  // After a reload of the page the server goes on with an answer that this page did not ask for.
  const pending = known ? state.pending : [...state.pending, { id, question: "", text: "", state: /** @type {const} */ ("answering") }];
  return { ...state, pending: pending.map((each) => (each.id === id ? { ...each, ...change } : each)) };
}
