// Branches of a conversation: ask a question differently, and see all versions as a tree.
import { html, useState } from "../lib/html.js";
import { conversationPath, get, post } from "../lib/api.js";
import { wordsOf } from "../lib/content.js";
import { leaveQuestion } from "../lib/drafts.js";
import { plural, titleOf } from "../lib/format.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { go, linkTo } from "../lib/router.js";
import { newId } from "../lib/session.js";
import { Dialog } from "./dialog.js";
import { Button, Field, ProblemNote, Time } from "./ui.js";

/** @typedef {{ conversation_id: string, parent_id: string | null, subject: string | null, own_messages: number, shared_messages: number, created_at: string, last_activity: string }} Branch */

/** The tree that a conversation belongs to; nothing if it has no branches. @param {{ record: Record<string, any> }} props */
export function BranchTree({ record }) {
  const found = useLoad((signal) => get(`${conversationPath(record.id)}/branches`, {}, signal), [record.id, record.revision]);
  /** @type {Branch[]} */
  const all = found.data?.branches ?? [];
  if (all.length < 2) return null;
  const known = new Set(all.map((each) => each.conversation_id));
  const roots = all.filter((each) => !each.parent_id || !known.has(each.parent_id));
  return html`<nav class="branches" aria-label="Branches"><h3>Branches</h3><${Level} branches=${roots} all=${all} current=${record.id} /></nav>`;
}

/** @param {{ branches: Branch[], all: Branch[], current: string }} props */
function Level({ branches, all, current }) {
  if (!branches.length) return null;
  return html`<ul>${branches.map((each) => html`<li key=${each.conversation_id}>
    <a href=${linkTo("thread", each.conversation_id)} aria-current=${each.conversation_id === current ? "page" : undefined} dir="auto">${titleOf(each)}</a>
    <span class="muted">${facts(each)}, <${Time} at=${each.last_activity} />${each.conversation_id !== current && html` · <a class="inline" href=${linkTo("compare", current, { with: each.conversation_id })}>Compare<span class="visually-hidden"> with ${titleOf(each)}</span></a>`}</span>
    <${Level} branches=${all.filter((one) => one.parent_id === each.conversation_id)} all=${all} current=${current} />
  </li>`)}</ul>`;
}

/** @param {Branch} branch */
const facts = (branch) => (branch.parent_id ? `${plural(branch.own_messages, "message")} after ${branch.shared_messages} shared` : plural(branch.own_messages, "message"));

/**
 * Edit a question: the branch shares everything before it, and the question is asked there.
 * @param {{ id: string, entry: Record<string, any>, onClose: () => void }} props
 */
export function EditQuestion({ id, entry, onClose }) {
  const [text, setText] = useState(() => wordsOf(entry.message));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  // The server returns the first branch if an attempt without a response is repeated.
  const [request] = useState(newId);

  async function fork() {
    setBusy(true);
    try {
      const subject = text.trim().replace(/\s+/g, " ").slice(0, 60);
      const branch = await post(`${conversationPath(id)}/branches`, { message_id: entry.message.message_id, subject, request_id: request });
      leaveQuestion(branch.id, text.trim());
      go("thread", branch.id);
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  }

  return html`<${Dialog} title="Ask differently" onClose=${onClose}>
    <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (text.trim() && !busy) void fork(); }}>
      <${Field} label="Question" hint="The answer comes in a branch. This conversation stays as it is.">${(/** @type {string} */ field, /** @type {string} */ hint) => html`
        <textarea id=${field} aria-describedby=${hint} rows="4" dir="auto" maxlength="100000" autofocus value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>`}<//>
      <${ProblemNote} problem=${problem} />
      <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//><button type="submit" class="button primary" disabled=${!text.trim() || busy}>Ask in a branch</button></div>
    </form>
  <//>`;
}
