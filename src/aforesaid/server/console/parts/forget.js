// Redact a message or forget a note, together with what repeats it: what there is, a choice, the receipt.
import { html, useState } from "../lib/html.js";
import { post } from "../lib/api.js";
import { download } from "../lib/files.js";
import { fullTime, plural } from "../lib/format.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { session } from "../lib/session.js";
import { Dialog } from "./dialog.js";
import { Button, Chip, Loading, ProblemNote } from "./ui.js";

const SPEAKERS = /** @type {Record<string, string>} */ ({ user: "You", assistant: "Assistant", tool: "Tool", system: "System" });

/** @typedef {{ what: string } | { conversation_id: string, message_id: string }} Target */
/** @typedef {{ id: string, who: string, text: string, elsewhere: boolean, goesWith?: string }} Repetition */

/** What would be forgotten with a note or message. @param {Target} target @returns {Promise<any>} */
export const previewOfForgetting = (target) => post("v1/forgetting", { ...target, preview: true });

/**
 * @param {{ title: string, action: string, target: Target, quote: string, children?: any, onClose: () => void, onAlone?: () => Promise<void> }} props
 * `onAlone` removes the target alone, for keys that may not look everywhere.
 */
export function Forget({ title, action, target, quote, children, onClose, onAlone }) {
  const preview = useLoad(() => previewOfForgetting(target), [JSON.stringify(target), session.owner]);
  const [kept, setKept] = useState(/** @type {Set<string>} */ (new Set()));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [receipt, setReceipt] = useState(/** @type {any} */ (null));
  const found = preview.data ? repetitions(preview.data, target) : [];

  /** @param {() => Promise<any>} act */
  async function run(act) {
    setBusy(true);
    setProblem(null);
    try {
      await act();
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(false);
  }
  const everywhere = () => run(async () => setReceipt((await post("v1/forgetting", { ...target, keep: [...kept], scrub: true })).receipt));
  if (receipt) return html`<${Dialog} title="Forgotten" onClose=${onClose}><${ForgetReceipt} receipt=${receipt} onClose=${onClose} /><//>`;
  return html`<${Dialog} title=${title} onClose=${onClose} class="forget">
    ${children}<blockquote dir="auto">${quote}</blockquote>
    <${Loading} on=${preview.loading} /><${ProblemNote} problem=${problem ?? preview.problem} retry=${preview.problem ? preview.reload : undefined} />
    ${preview.data && (found.length ? html`<${Choice} found=${found} kept=${kept} onKept=${setKept} />` : html`<p class="muted">Nothing else repeats it.</p>`)}
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//>
      ${preview.problem && onAlone ? html`<${Button} kind="danger" disabled=${busy} onClick=${() => run(async () => { await onAlone(); onClose(); })}>${action} only this<//>`
        : html`<${Button} kind="danger" disabled=${busy || !preview.data} onClick=${everywhere}>${actionFor(action, found.length - kept.size)}<//>`}</div>
  <//>`;
}

/** @param {string} action @param {number} others */
const actionFor = (action, others) => (others ? `${action} this and ${plural(others, "repetition")}` : action);

/** Which of the repetitions go. @param {{ found: Repetition[], kept: Set<string>, onKept: (kept: Set<string>) => void }} props */
function Choice({ found, kept, onKept }) {
  const free = found.filter((each) => !each.goesWith || kept.has(each.goesWith));
  /** @param {string} id @param {boolean} goes */
  function choose(id, goes) {
    const next = new Set(kept);
    if (goes) next.delete(id);
    else next.add(id);
    // A note cannot stay without the message that it came from.
    for (const each of found) if (each.goesWith && !next.has(each.goesWith)) next.delete(each.id);
    onKept(next);
  }
  return html`<fieldset class="ways repetitions"><legend>${plural(found.length, "repetition")}: choose what goes as well</legend>
    ${found.length > 1 && html`<label class="check"><input type="checkbox" checked=${!kept.size} onChange=${(/** @type {any} */ event) => onKept(new Set(event.target.checked ? [] : free.map((each) => each.id)))} />All of them</label>`}
    <ul class="plain">${found.map((each) => html`<li key=${each.id}><label class="way"><input type="checkbox" checked=${!kept.has(each.id)} disabled=${!free.includes(each)}
      onChange=${(/** @type {any} */ event) => choose(each.id, event.target.checked)} />
      <span><strong>${each.who}</strong>${each.elsewhere && html` <${Chip}>another conversation<//>`}<span class="hint" dir="auto">${each.text || "A tool call or its result"}</span></span></label></li>`)}</ul>
  </fieldset>`;
}

/** @param {any} found @param {Target} target @returns {Repetition[]} */
function repetitions(found, target) {
  const here = "conversation_id" in target ? target.conversation_id : "";
  const message = "message_id" in target ? target.message_id : "";
  const messages = found.messages.filter((/** @type {any} */ each) => each.message_id !== message).map((/** @type {any} */ each) => ({
    id: each.message_id, who: SPEAKERS[each.role] ?? each.role, text: shortened(each.text), elsewhere: here !== "" && each.conversation_id !== here,
  }));
  const going = new Set(found.messages.map((/** @type {any} */ each) => each.message_id));
  const notes = "what" in target ? [] : found.notes.map((/** @type {any} */ each) => ({
    id: each.id, who: "Note", text: shortened(each.text), elsewhere: false, goesWith: going.has(each.source?.message_id) ? each.source.message_id : undefined,
  }));
  return [...notes, ...messages];
}

/** @param {string} text */
const shortened = (text) => (text.length > 160 ? `${text.slice(0, 160)}…` : text);

/** What was removed, in numbers and without the words. @param {{ receipt: any, onClose: () => void }} props */
function ForgetReceipt({ receipt, onClose }) {
  const save = () => download(new Blob([JSON.stringify(receipt, null, 2)], { type: "application/json" }), "aforesaid-receipt.json");
  return html`<p role="status">Removed for good: ${plural(receipt.notes, "note")} and the words of ${plural(receipt.messages, "message")} in ${plural(receipt.conversations, "conversation")}. A mark stands in place of each message.</p>
    <dl class="facts open"><dt>When</dt><dd>${fullTime(receipt.forgotten_at)}</dd><dt>Digest</dt><dd><code class="id">${receipt.digest}</code></dd></dl>
    <div class="dialog-actions"><${Button} icon="download" onClick=${save}>Save the receipt<//><${Button} kind="primary" onClick=${onClose}>Done<//></div>`;
}
