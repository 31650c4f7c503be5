// A thread with its connection: load, follow, ask, interrupt, page back.
import { useCallback, useEffect, useReducer, useRef, useState } from "./html.js";
import { Problem, conversationPath, get, post } from "./api.js";
import { openingOf } from "./content.js";
import { asProblem } from "./hooks.js";
import { LiveThread } from "./live.js";
import { cursorBefore } from "./positions.js";
import { may, session } from "./session.js";
import { EMPTY, asked, prepend, reduceFrame, settle, unseenQuestions, withOpenTurns } from "./thread_state.js";

const PAGE = 50;

/** @typedef {import("./thread_state.js").ThreadState} ThreadState */
/** @typedef {(state: ThreadState) => ThreadState} Step */

/**
 * @param {string} id
 * @param {import("./people.js").Participant | null} acting The participant as whom to write; null for the owner.
 * @param {(frame: Record<string, any>) => void} [onFrame] Sees every frame, for example to speak an answer.
 */
export function useThread(id, acting, onFrame) {
  const [state, step] = useReducer((/** @type {ThreadState} */ before, /** @type {Step} */ change) => change(before), EMPTY);
  const [link, setLink] = useState("connecting");
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const live = useRef(/** @type {LiveThread | null} */ (null));
  const listener = useRef(onFrame);
  listener.current = onFrame;

  useEffect(() => {
    step(() => EMPTY);
    setProblem(null);
    const thread = new LiveThread(id, {
      history: PAGE,
      canWrite: may("write"),
      acting,
      onState: (next, reason) => {
        setLink(next);
        if (reason === "access") setProblem(new Problem(401, { detail: "The key is no longer valid." }));
      },
      onFrame: (frame) => {
        if (frame.type === "error" && !frame.id && frame.problem) setProblem(new Problem(frame.problem.status, frame.problem));
        if (frame.type === "ready") void afterReady(id, frame, step);
        if (frame.type === "answer.failed") void loadOpenTurns(id, step);
        step((before) => reduceFrame(before, frame));
        listener.current?.(frame);
      },
    });
    live.current = thread;
    return () => thread.close();
  }, [id, acting?.id]);
  useReading(live, acting, state, link);
  useOwnReading(id, state, link);
  useOthersQuestions(id, state, step);

  const ask = useCallback((/** @type {string} */ text, /** @type {string | undefined} */ again) => {
    const made = live.current?.ask(text, again);
    if (made) step((before) => asked({ ...before, open: before.open.filter((each) => each.id !== made) }, made, text));
  }, []);

  const loadOlder = useCallback(async (/** @type {ThreadState} */ current) => {
    const first = current.entries[0];
    if (!first) return;
    const cursor = current.older ?? cursorBefore(first);
    try {
      const page = await get(`${conversationPath(id)}/messages`, { before: cursor, limit: 2 * PAGE });
      step((before) => prepend(before, page.entries, page.next));
    } catch (error) {
      setProblem(asProblem(error));
    }
  }, [id]);

  const discard = useCallback(async (/** @type {string} */ turn) => {
    await post(`${conversationPath(id)}/open-turns/discard`, { turn_id: turn });
    step((before) => settle({ ...before, open: before.open.filter((each) => each.id !== turn) }, turn));
  }, [id]);

  const apply = useCallback((/** @type {Step} */ change) => step(change), []);
  return { state, link, problem, live, ask, loadOlder, discard, apply };
}

/**
 * @param {string} id
 * @param {Record<string, any>} frame
 * @param {(change: Step) => void} step
 */
async function afterReady(id, frame, step) {
  await loadOpenTurns(id, step);
  if (!frame.conversation.subject && frame.conversation.message_count > PAGE) await loadOpening(id, step);
  if (frame.conversation.participants?.length) await loadMarkers(id, step);
}

/** Read how a long conversation begins, for its title. @param {string} id @param {(change: Step) => void} step */
async function loadOpening(id, step) {
  const page = await get(`${conversationPath(id)}/messages`, { offset: 0, limit: 4 }).catch(() => null);
  if (page) step((before) => ({ ...before, record: before.record && { ...before.record, opening: openingOf(page.entries) } }));
}

/** @param {string} id @param {(change: Step) => void} step */
async function loadMarkers(id, step) {
  try {
    const { markers } = await get(`${conversationPath(id)}/read-markers`);
    const read = Object.fromEntries(markers.map((/** @type {any} */ each) => [each.participant_id, each.message_id]));
    // Frames that came meanwhile are later.
    step((before) => ({ ...before, markers: { ...read, ...before.markers } }));
  } catch (error) {
    console.info("read markers cannot be read", asProblem(error).message);
  }
}

/**
 * Record that the acting participant has read what the page shows.
 * @param {{ current: LiveThread | null }} live
 * @param {import("./people.js").Participant | null} acting
 * @param {ThreadState} state
 * @param {string} link
 */
function useReading(live, acting, state, link) {
  const latest = acting ? state.entries.findLast((entry) => entry.message.message_id)?.message.message_id : undefined;
  useEffect(() => {
    if (!acting || !latest || link !== "live" || document.visibilityState !== "visible") return;
    if (live.current?.send({ type: "read", message_id: latest })) live.current.options.onFrame({ type: "read", participant_id: acting.id, message_id: latest });
  }, [acting?.id, latest, link]);
}

/**
 * Mark what the page shows as read, also what was written and answered here.
 * A participant has a read marker of their own; this count is the owner's.
 * @param {string} id
 * @param {ThreadState} state
 * @param {string} link
 */
function useOwnReading(id, state, link) {
  const latest = state.entries.at(-1)?.sequence ?? 0;
  const read = useRef(0);
  useEffect(() => {
    if (!latest || link !== "live" || !may("write") || session.access?.participant) return undefined;
    if (!read.current && !state.record?.unread_count) read.current = latest;
    const mark = () => {
      if (read.current === latest || document.visibilityState !== "visible") return;
      read.current = latest;
      void post(`${conversationPath(id)}/read`).catch(() => null);
    };
    mark();
    document.addEventListener("visibilitychange", mark);
    return () => document.removeEventListener("visibilitychange", mark);
  }, [id, latest, link]);
}

/**
 * Show questions of other browsers while they are answered. A question is announced once it is stored.
 * @param {string} id
 * @param {ThreadState} state
 * @param {(change: Step) => void} step
 */
function useOthersQuestions(id, state, step) {
  const unseen = unseenQuestions(state).join();
  useEffect(() => {
    if (unseen) void loadOpenTurns(id, step);
  }, [id, unseen]);
}

/**
 * Show questions that have no answer: the server keeps them when an assistant fails.
 * @param {string} id
 * @param {(change: Step) => void} step
 */
async function loadOpenTurns(id, step) {
  try {
    const found = await get(`${conversationPath(id)}/open-turns`);
    step((before) => withOpenTurns(before, found.open_turns));
  } catch (error) {
    console.info("open turns cannot be read", asProblem(error).message);
  }
}

/**
 * Load the part of the log around a message, for jumps from search.
 * @param {string} id
 * @param {number} sequence
 */
export async function loadUpTo(id, sequence) {
  let cursor = "latest", found = /** @type {any[]} */ ([]);
  for (let page = 0; page < 40; page += 1) {
    const next = await get(`${conversationPath(id)}/messages`, { before: cursor, limit: 500 });
    found = [...next.entries, ...found];
    if (!next.next || found.some((entry) => entry.sequence === sequence)) return { entries: found, older: next.next };
    cursor = next.next;
  }
  return { entries: found, older: cursor };
}
