// A conversation: stored messages, streaming answers, voice, and its record at the side.
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { conversationPath, post } from "../lib/api.js";
import { previewOf, wordsOf } from "../lib/content.js";
import { takeQuestion } from "../lib/drafts.js";
import { plural, titleOf } from "../lib/format.js";
import { asProblem, useKeys } from "../lib/hooks.js";
import { actIn, actingIn, mayWriteAs } from "../lib/people.js";
import { linkTo, replaceQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { asked, currentRecord, merge, prepend } from "../lib/thread_state.js";
import { loadUpTo, useThread } from "../lib/use_thread.js";
import { canSpeak, speak, whySilent } from "../lib/voice.js";
import { Assignment } from "../parts/assignment.js";
import { EditQuestion } from "../parts/branches.js";
import { Composer } from "../parts/composer.js";
import { toast } from "../parts/dialog.js";
import { Forget } from "../parts/forget.js";
import { MessageItem } from "../parts/message.js";
import { OpenTurns, PendingTurns, Typing } from "../parts/pending.js";
import { Here, People, readersByMessage } from "../parts/people.js";
import { ThreadSide } from "../parts/thread_side.js";
import { Button, Chip, Empty, LinkButton, PageHead, ProblemNote } from "../parts/ui.js";

/** @param {{ id: string, query: URLSearchParams }} props */
export default function Thread({ id, query }) {
  const target = Number(query.get("message")) || 0;
  const [side, setSide] = useState(() => matchMedia("(min-width: 1200px)").matches);
  const [redacting, setRedacting] = useState(/** @type {any} */ (null));
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const [aloud, setAloud] = useState(() => localStorage.getItem("aforesaid.aloud") === "yes");
  const readAloud = (/** @type {boolean} */ on) => {
    localStorage.setItem("aforesaid.aloud", on ? "yes" : "no");
    setAloud(on);
  };
  const voice = useVoice(aloud, () => readAloud(false));
  const [acting, setActing] = useState(() => actingIn(id));
  const { state, link, problem, live, ask, loadOlder, discard, apply } = useThread(id, acting, voice.onFrame);
  const log = useRef(/** @type {HTMLElement | null} */ (null));
  const { keep, follow } = useScroll(log, state, target);
  useJump(id, target, state, apply);
  const asksToRedact = query.get("redact") !== null && state.entries.find((entry) => entry.sequence === target);
  useEffect(() => {
    if (!asksToRedact) return;
    replaceQuery({ message: String(target) });
    if (may("write") && !asksToRedact.message.tags?.includes("redacted")) setRedacting(asksToRedact);
  }, [Boolean(asksToRedact)]);
  useEffect(() => {
    const question = takeQuestion(id);
    if (question) send(question);
  }, [id]);
  useKeys({ r: () => document.getElementById("composer")?.focus() });

  /** @param {string} text @param {string} [again] The id of an earlier attempt. */
  function send(text, again) {
    follow();
    ask(text, again);
  }

  const setRecord = (/** @type {any} */ record) => apply((before) => ({ ...before, record }));

  async function older() {
    keep();
    await loadOlder(state);
  }

  function stop() {
    const said = voice.cancel();
    if (said) live.current?.send({ type: "interrupt", ...said });
    for (const each of state.pending.filter((one) => one.state !== "failed")) live.current?.send({ type: "interrupt", id: each.id });
  }

  const remember = useCallback(async (/** @type {any} */ entry) => {
    try {
      await post("v1/notes", { text: wordsOf(entry.message).slice(0, 1900), conversation_id: id, message_id: entry.message.message_id });
      toast("Remembered. It is on the Memory page.");
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }, [id]);

  if (state.gone || problem?.status === 404) {
    return html`<${PageHead} title="Conversation" back=${linkTo("conversations")} /><${Empty} icon="conversations" title="This conversation is gone">
      <p>It was deleted, erased, archived, or it has expired.</p><a class="button" href=${linkTo("conversations")}>All conversations</a><//>`;
  }
  /** @type {import("../lib/people.js").Participant[]} */
  const people = state.record?.participants ?? [];
  const record = currentRecord(state);
  const readers = readersByMessage(people, state.markers);
  const me = acting && people.find((each) => each.id === acting.id);
  const canWrite = may("write") && mayWriteAs(me || undefined);
  const isAnswering = voice.speaking || state.pending.some((each) => each.state !== "failed");
  return html`<div class=${`thread-page ${side ? "with-side" : ""}`}>
    <section class="thread">
      <${PageHead} title=${record ? titleOf(record) : "Conversation"} back=${linkTo("conversations")} lead=${record && html`<span>${plural(record.message_count, "message")}</span> <${LinkState} state=${link} present=${state.present} participants=${people} />`}>
        <${LinkButton} href=${linkTo("context", id)} icon="context" kind="quiet">Context<//>
        <${Button} kind="quiet" icon="edit" aria-expanded=${side} onClick=${() => setSide(!side)}>Details<//>
      <//>
      <${ProblemNote} problem=${problem} />
      <div class="log" ref=${log} tabindex="0" role="region" aria-label="Messages"><div class="log-body">
        ${state.hasOlder && html`<div class="more"><${Button} onClick=${older}>Show earlier messages<//></div>`}
        ${state.record && !state.entries.length && !state.pending.length && !state.open.length && html`<${Empty} icon="conversations" title="Say something">
          <p>Try “Remember that I like leeks.” Then open another conversation and ask “What do I like?”</p><//>`}
        <ol class="messages" aria-live="polite" aria-relevant="additions">
          ${state.entries.map((entry) => html`<${MessageItem} key=${entry.sequence} entry=${entry} conversation=${id} isTarget=${entry.sequence === target} participants=${people} readers=${readers.get(entry.message.message_id)}
            onRedact=${setRedacting} onRemember=${remember} onEdit=${setEditing} />`)}
        </ol>
        <${OpenTurns} turns=${state.open} answering=${state.answering} participants=${people} onAsk=${(/** @type {any} */ turn) => send(wordsOf(turn.messages[0]), turn.id)} onDiscard=${discard} />
        <${PendingTurns} pending=${state.pending} onRetry=${(/** @type {any} */ each) => send(each.question, each.id)} onDiscard=${discard} />
        <${Typing} typing=${state.open.some((turn) => state.answering.includes(turn.id)) ? state.typing.filter((each) => each.role !== "assistant") : state.typing} />
      </div></div>
      <${Composer} id=${id} live=${live} onAsk=${send} disabled=${!canWrite} isAnswering=${isAnswering} onStop=${stop} aloud=${aloud}
        onSpoken=${(/** @type {string} */ turn) => follow() ?? apply((before) => asked(before, turn, "", true))}
        onAloud=${(/** @type {boolean} */ on) => (canSpeak() ? readAloud(on) : toast(whySilent(""), { bad: true }))} />
    </section>
    ${side && record && html`<${ThreadSide} record=${record} onClose=${() => setSide(false)}
      onRecord=${setRecord}><${Assignment} record=${record} acting=${acting} onRecord=${setRecord} />
      <${People} record=${record} present=${state.present} markers=${state.markers} entries=${state.entries} acting=${acting} onRecord=${setRecord}
        onAct=${(/** @type {any} */ participant) => { actIn(id, participant); setActing(participant); }} /><//>`}
    ${editing && html`<${EditQuestion} id=${id} entry=${editing} onClose=${() => setEditing(null)} />`}
    ${redacting && html`<${Redact} id=${id} entry=${redacting} onClose=${() => setRedacting(null)} />`}
  </div>`;
}

/** @param {{ state: string, present: import("../parts/people.js").Present[], participants: import("../lib/people.js").Participant[] }} props */
function LinkState({ state, present, participants }) {
  if (state === "live") return html`<${Here} present=${present} participants=${participants} />`;
  return html`<span role="status"><${Chip} kind="warn">${state === "closed" ? "signed out" : "reconnecting…"}<//></span>`;
}

/** @param {{ id: string, entry: any, onClose: () => void }} props */
function Redact({ id, entry, onClose }) {
  const target = { conversation_id: id, message_id: entry.message.message_id };
  return html`<${Forget} title="Redact this message?" action="Redact" target=${target} quote=${previewOf(entry.message)} onClose=${onClose}
    onAlone=${async () => { await post(`${conversationPath(id)}/redactions`, { message_id: target.message_id, scrub: true }); toast("Redacted. A mark stands in its place."); }}>
    <p>Its words are removed for good, also from search and summaries. This cannot be undone.</p><//>`;
}

/**
 * Read answers aloud, if the user wants that or asked by voice.
 * @param {boolean} aloud
 * @param {() => void} onSilent Called when the browser cannot speak.
 */
function useVoice(aloud, onSilent) {
  const speech = useRef(/** @type {{ id: string, cancel: () => number } | null} */ (null));
  const [speaking, setSpeaking] = useState("");
  const silent = useRef(onSilent);
  silent.current = onSilent;
  const end = (/** @type {string} */ error) => {
    speech.current = null;
    setSpeaking("");
    if (!error || ["interrupted", "canceled"].includes(error)) return;
    toast(whySilent(error), { bad: true });
    silent.current();
  };
  const onFrame = useCallback((/** @type {Record<string, any>} */ frame) => {
    if (frame.type !== "answer.done" || frame.repeated || frame.interrupted || !(aloud || frame.spoken) || !canSpeak()) return;
    const words = frame.spoken ?? frame.text;
    if (!words.trim()) return;
    setSpeaking(frame.id);
    speech.current = { id: frame.id, cancel: speak(words, end).cancel };
  }, [aloud]);
  const cancel = useCallback(() => {
    if (!speech.current) return null;
    setSpeaking("");
    const { id, cancel: stop } = speech.current;
    speech.current = null;
    return { id, heard: stop() };
  }, []);
  useEffect(() => () => void cancel(), []);
  return { onFrame, cancel, speaking };
}

/**
 * Stay at the end while new messages come, unless the user has scrolled up; keep the place when older ones load.
 * `follow` goes to the end for what the user sends.
 * @param {{ current: HTMLElement | null }} log
 * @param {import("../lib/thread_state.js").ThreadState} state
 * @param {number} target
 */
function useScroll(log, state, target) {
  const atEnd = useRef(!target);
  const anchor = useRef(/** @type {{ height: number, top: number } | null} */ (null));
  const first = state.entries[0]?.sequence;
  useEffect(() => {
    const element = log.current;
    const look = () => { if (element) atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 80; };
    // Messages get their real height when they come into view, and the composer grows: stay at the end then, too.
    const sizes = new ResizeObserver(() => { if (element && atEnd.current) element.scrollTop = element.scrollHeight; });
    for (const each of element ? [element, ...element.children] : []) sizes.observe(each);
    element?.addEventListener("scroll", look, { passive: true });
    return () => {
      sizes.disconnect();
      element?.removeEventListener("scroll", look);
    };
  }, [state.record === null]);
  useLayoutEffect(() => {
    const element = log.current;
    if (!element) return;
    if (anchor.current) {
      element.scrollTop = element.scrollHeight - anchor.current.height + anchor.current.top;
      anchor.current = null;
    } else if (atEnd.current) element.scrollTop = element.scrollHeight;
  }, [first, state.entries.length, state.pending, state.open.length, state.typing.length]);
  return {
    keep: () => { if (log.current) anchor.current = { height: log.current.scrollHeight, top: log.current.scrollTop }; },
    follow: () => { atEnd.current = true; },
  };
}

/**
 * Load and show the message that the address names.
 * @param {string} id
 * @param {number} target
 * @param {import("../lib/thread_state.js").ThreadState} state
 * @param {(change: (before: any) => any) => void} apply
 */
function useJump(id, target, state, apply) {
  const done = useRef(0);
  useEffect(() => {
    if (!target || !state.record || done.current === target) return;
    done.current = target;
    void (async () => {
      if (!state.entries.some((entry) => entry.sequence === target)) {
        const found = await loadUpTo(id, target);
        apply((before) => merge(prepend(before, found.entries, found.older), []));
      }
      requestAnimationFrame(() => document.getElementById(`m${target}`)?.scrollIntoView({ block: "center" }));
    })();
  }, [target, state.record !== null]);
}

