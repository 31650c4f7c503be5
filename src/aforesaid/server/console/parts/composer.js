// Where the user types or speaks.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { draftOf, keepDraft } from "../lib/drafts.js";
import { canRecord, record, whyNot } from "../lib/microphone.js";
import { newId, session } from "../lib/session.js";
import { toast } from "./dialog.js";
import { Button } from "./ui.js";

const TYPING_SECONDS = 3;
const LONGEST = 100_000;

/**
 * @param {{ id: string, live: { current: import("../lib/live.js").LiveThread | null }, onAsk: (text: string) => void, onSpoken: (id: string) => void, disabled: boolean, isAnswering: boolean, onStop: () => void, aloud: boolean, onAloud: (on: boolean) => void }} props
 */
export function Composer({ id, live, onAsk, onSpoken, disabled, isAnswering, onStop, aloud, onAloud }) {
  const [text, setText] = useState(() => draftOf(id));
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const sendTyping = useTyping(live);
  useEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, 240)}px`;
  }, [text]);

  /** @param {string} value */
  function change(value) {
    setText(value);
    keepDraft(id, value);
    sendTyping(value !== "");
  }

  function submit() {
    const words = text.trim();
    if (!words || disabled) return;
    if (words.length > LONGEST) {
      toast(`A message has at most ${LONGEST.toLocaleString()} characters; this one has ${words.length.toLocaleString()}.`, { bad: true });
      return;
    }
    onAsk(words);
    change("");
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape") field.current?.blur();
  }

  return html`<form class="composer" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); submit(); }}>
    <label class="visually-hidden" for="composer">Message</label>
    <textarea id="composer" ref=${field} rows="1" dir="auto" value=${text} onKeyDown=${onKey} disabled=${disabled}
      placeholder=${disabled ? "This key may read, not write" : "Write a message"}
      onInput=${(/** @type {any} */ event) => change(event.target.value)}></textarea>
    <div class="composer-actions">
      ${session.access?.voice && canRecord() && html`<${Speak} live=${live} onSpoken=${onSpoken} disabled=${disabled} />`}
      <${Button} kind=${aloud ? "on" : "quiet"} icon="speaker" label=${aloud ? "Answers are read aloud" : "Read answers aloud"} aria-pressed=${aloud} onClick=${() => onAloud(!aloud)} />
      ${isAnswering
        ? html`<${Button} kind="primary" icon="stop" onClick=${onStop}>Stop<//>`
        : html`<button type="submit" class="button primary" disabled=${!text.trim() || disabled}>Send</button>`}
    </div>
  </form>`;
}

/** Record while the button is on; the server transcribes and answers. @param {{ live: { current: import("../lib/live.js").LiveThread | null }, onSpoken: (id: string) => void, disabled: boolean }} props */
function Speak({ live, onSpoken, disabled }) {
  const [recording, setRecording] = useState(/** @type {{ id: string, stop: () => void } | null} */ (null));
  const [level, setLevel] = useState(0);
  const latest = useRef(recording);
  latest.current = recording;
  useEffect(() => () => latest.current?.stop(), []);

  async function begin() {
    const id = `v-${newId()}`;
    try {
      let started = false;
      const made = await record((chunk) => started && live.current?.sendAudio(chunk), setLevel);
      started = live.current?.send({ type: "audio.start", id, media_type: "audio/pcm", rate: made.rate, channels: 1 }) ?? false;
      if (!started) {
        made.stop();
        toast("The connection is being restored. Try again in a moment.", { bad: true });
        return;
      }
      setRecording({ id, stop: made.stop });
    } catch (error) {
      toast(whyNot(error), { bad: true });
    }
  }

  /** @param {boolean} keep */
  function end(keep) {
    if (!recording) return;
    recording.stop();
    live.current?.send({ type: keep ? "audio.end" : "audio.cancel", id: recording.id });
    if (keep) onSpoken(recording.id);
    setRecording(null);
    setLevel(0);
  }

  if (!recording) return html`<${Button} kind="quiet" icon="mic" label="Speak" onClick=${begin} disabled=${disabled} />`;
  return html`<div class="recording" role="group" aria-label="Recording">
    <meter class="level" min="0" max="1" value=${level} aria-label="Loudness"></meter>
    <${Button} kind="quiet" icon="close" label="Discard the recording" onClick=${() => end(false)} />
    <${Button} kind="danger" icon="stop" onClick=${() => end(true)}>Done<//>
  </div>`;
}

/** Send typing notices, at most one every few seconds. @param {{ current: import("../lib/live.js").LiveThread | null }} live */
function useTyping(live) {
  const last = useRef(0);
  const timer = useRef(0);
  const stop = () => {
    clearTimeout(timer.current);
    if (last.current) live.current?.send({ type: "typing", active: false });
    last.current = 0;
  };
  useEffect(() => stop, []);
  return (/** @type {boolean} */ active) => {
    if (!active) return stop();
    clearTimeout(timer.current);
    timer.current = window.setTimeout(stop, TYPING_SECONDS * 1000);
    if (Date.now() - last.current < TYPING_SECONDS * 1000) return undefined;
    last.current = Date.now();
    live.current?.send({ type: "typing", active: true });
    return undefined;
  };
}
