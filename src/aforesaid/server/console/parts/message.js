// One stored message: words, folded tool calls, pictures, marks, and what can be done with it.
import { html, useState } from "../lib/html.js";
import { partsOf } from "../lib/content.js";
import { fullTime, timeOfDay } from "../lib/format.js";
import { nameById } from "../lib/people.js";
import { linkTo } from "../lib/router.js";
import { may } from "../lib/session.js";
import { Icon } from "./icons.js";
import { Picture } from "./picture.js";
import { Button, Chip } from "./ui.js";
import { Words } from "./words.js";

const LONG = 4000;

/** @typedef {import("../lib/content.js").Part} Part */

/**
 * @param {{ entry: Record<string, any>, conversation: string, isTarget?: boolean, onRedact?: (entry: Record<string, any>) => void, onRemember?: (entry: Record<string, any>) => void, onEdit?: (entry: Record<string, any>) => void, participants?: import("../lib/people.js").Participant[], readers?: import("../lib/people.js").Participant[] }} props
 */
export function MessageItem({ entry, conversation, isTarget, onRedact, onRemember, onEdit, participants = [], readers }) {
  const { message } = entry;
  const parts = entry.unreadable ? [] : partsOf(message);
  const kind = kindOf(message, parts);
  const marks = message.tags ?? [];
  return html`<li class=${`message ${kind} ${isTarget ? "target" : ""}`} id=${`m${entry.sequence}`} data-sequence=${entry.sequence}>
    <div class="message-head">
      <span class="speaker">${entry.unreadable ? "Unknown speaker" : speakerOf(message, kind, participants)}</span>
      ${message.content_type === "audio" && html`<${Chip} icon="voice" title="Spoken">spoken<//>`}
      ${marks.includes("redacted") && html`<${Chip} kind="warn">redacted<//>`}
      ${marks.includes("interrupted") && html`<${Chip} kind="warn">interrupted<//>`}
      ${marks.filter((/** @type {string} */ tag) => !MARKS.has(tag)).map((/** @type {string} */ tag) => html`<${Chip} key=${tag} kind="tag">${tag}<//>`)}
      <time datetime=${message.timestamp} title=${fullTime(message.timestamp ?? entry.stored_at)}>${timeOfDay(message.timestamp ?? entry.stored_at)}</time>
      <${Actions} entry=${entry} conversation=${conversation} kind=${kind} onRedact=${onRedact} onRemember=${onRemember}
        onEdit=${parts.length && parts.every((part) => part.kind === "text") ? onEdit : undefined} />
    </div>
    <div class="message-body" dir="auto">
      ${entry.unreadable && html`<p class="unreadable"><${Icon} name="warn" /><span>This message cannot be read: ${entry.unreadable}. It stays stored, and is shown again once the server has what it needs.</span></p>`}
      ${parts.map((part, index) => html`<${PartView} key=${index} part=${part} speech=${message.speech} conversation=${entry.conversation_id ?? conversation} />`)}
    </div>
    ${readers && html`<${ReadBy} readers=${readers.filter((each) => each.id !== message.author)} />`}
  </li>`;
}

/** Who has read up to this message. @param {{ readers: import("../lib/people.js").Participant[] }} props */
const ReadBy = ({ readers }) => (readers.length ? html`<p class="read-by">Read by ${readers.map((each) => each.name).join(", ")}</p>` : null);

const MARKS = new Set(["redacted", "interrupted"]);

/** @param {{ entry: Record<string, any>, conversation: string, kind: string, onRedact?: (entry: any) => void, onRemember?: (entry: any) => void, onEdit?: (entry: any) => void }} props */
function Actions({ entry, conversation, kind, onRedact, onRemember, onEdit }) {
  const { message } = entry;
  if (entry.unreadable || !message.message_id) return null;
  const isRedacted = message.tags?.includes("redacted");
  return html`${kind === "assistant" && html`<a class="why" href=${linkTo("context", conversation, { answer: message.message_id })}>Why?</a>`}<div class="message-actions">
    ${kind === "user" && may("write") && onEdit && !isRedacted && html`<${Button} kind="quiet small" onClick=${() => onEdit(entry)}>Ask differently<//>`}
    ${kind === "user" && may("write") && onRemember && !isRedacted && html`<${Button} kind="quiet small" onClick=${() => onRemember(entry)}>Remember<//>`}
    ${may("write") && onRedact && !isRedacted && html`<${Button} kind="quiet small" onClick=${() => onRedact(entry)}>Redact<//>`}
  </div>`;
}

/** @param {{ part: Part, speech?: Record<string, any>, conversation: string }} props */
export function PartView({ part, speech, conversation }) {
  if (part.kind === "text") return html`<${Text} text=${part.text} speech=${speech} />`;
  if (part.kind === "image") return html`<${Picture} part=${part} conversation=${conversation} />`;
  const [icon, title] = { call: ["tool", `Calls ${part.name}`], result: ["tool", part.failed ? "Tool failed" : "Tool result"], thinking: ["help", "Thinking"] }[/** @type {string} */ (part.kind)] ?? ["more", "Other content"];
  return html`<details class=${`fold ${part.failed ? "bad" : ""}`}>
    <summary><${Icon} name=${icon} /><span>${title}</span><span class="fold-preview">${oneLine(part.text)}</span></summary>
    <pre>${part.text.length > 20_000 ? `${part.text.slice(0, 20_000)}…` : part.text || "Nothing"}</pre>
  </details>`;
}

/** @param {{ text: string, speech?: Record<string, any> }} props */
function Text({ text, speech }) {
  const [whole, setWhole] = useState(false);
  if (text.length > LONG && !whole) {
    return html`<${Words} text=${`${text.slice(0, LONG)}…`} /><${Button} kind="quiet small" onClick=${() => setWhole(true)}>Show all ${text.length.toLocaleString()} characters<//>`;
  }
  return html`<${Words} text=${text.length > 200_000 ? `${text.slice(0, 200_000)}…` : text} />
    ${speech?.heard != null && speech.spoken && html`<${Heard} speech=${speech} />`}`;
}

/** What was heard of a spoken answer. @param {{ speech: Record<string, any> }} props */
function Heard({ speech }) {
  const letters = [...speech.spoken];
  const heard = letters.slice(0, speech.heard).join("");
  return html`<p class="heard"><${Icon} name="speaker" /><span>${heard ? html`Heard up to here: <q>${heard.length > 120 ? `…${heard.slice(-120)}` : heard}</q>` : "Nothing of this was heard."}
    ${" "}<span class="unheard">Not heard: ${letters.length - speech.heard} of ${letters.length} characters.</span></span></p>`;
}

/** @param {Record<string, any>} message @param {Part[]} parts */
function kindOf(message, parts) {
  if (message.role === "tool" || (parts.length && parts.every((part) => part.kind === "result"))) return "tool";
  return message.role;
}

/** @param {Record<string, any>} message @param {string} kind @param {import("../lib/people.js").Participant[]} participants */
export function speakerOf(message, kind, participants = []) {
  if (typeof message.author === "string") return nameById(participants, message.author).slice(0, 80);
  if (message.name && typeof message.name === "string") return message.name.slice(0, 80);
  if (kind === "assistant") return message.agent_name || "Assistant";
  return { user: "You", tool: "Tool", system: "System" }[kind] ?? kind;
}

/** @param {string} text */
const oneLine = (text) => text.slice(0, 200).replace(/\s+/g, " ");
