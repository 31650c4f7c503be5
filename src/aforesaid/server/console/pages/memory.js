// What outlives a conversation: notes with their source, and summaries with the range they cover.
import { html, useState } from "../lib/html.js";
import { call, conversationPath, get, post } from "../lib/api.js";
import { number, plural, titleOf } from "../lib/format.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { withOpenings } from "../lib/records.js";
import { linkTo } from "../lib/router.js";
import { may, session } from "../lib/session.js";
import { Dialog, toast } from "../parts/dialog.js";
import { Forget, previewOfForgetting } from "../parts/forget.js";
import { Button, Chip, Empty, Field, Loading, PageHead, ProblemNote, TextField, Time } from "../parts/ui.js";
import { Words } from "../parts/words.js";

/** Above this number of notes there is a field to find one. */
const MANY = 8;

export default function Memory() {
  const [history, setHistory] = useState(false);
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const [wanted, setWanted] = useState("");
  const notes = useLoad((signal) => get("v1/notes", { history }, signal), [history, session.owner]);
  const list = [...(notes.data?.notes ?? [])].reverse();
  const current = list.filter((note) => !note.replaced_by);
  const shown = list.filter((note) => containsAll([note.text, ...(note.tags ?? [])].join(" "), wanted));
  return html`
    <${PageHead} title="Memory" lead="What the assistant knows about you in every conversation. Everything here can be changed and forgotten.">
      ${may("write") && html`<${Button} kind="primary" icon="plus" onClick=${() => setEditing({})}>Add a note<//>`}
    <//>
    <${ProblemNote} problem=${notes.problem} retry=${notes.reload} />
    <section class="stack" aria-labelledby="notes-heading">
      <div class="row spread"><h2 id="notes-heading">Notes and preferences</h2>
        <label class="check"><input type="checkbox" checked=${history} onChange=${(/** @type {any} */ event) => setHistory(event.target.checked)} />Show replaced notes</label></div>
      <${Loading} on=${notes.loading && !notes.data} />
      ${notes.data && !current.length && html`<${Empty} icon="memory" title="Nothing is noted yet"><p>Say “Remember that I like leeks” in any conversation, or add a note here. Notes are part of every later context.</p><//>`}
      ${list.length > MANY && html`<${TextField} label="Find a note" type="search" value=${wanted} onInput=${setWanted} placeholder="Words or a tag" />`}
      ${list.length > 0 && !shown.length && html`<p class="card muted">No note contains “${wanted}”.</p>`}
      <ul class="notes">${shown.map((note) => html`<${NoteItem} key=${note.id} note=${note} onEdit=${() => setEditing(note)} onGone=${notes.reload} />`)}</ul>
    </section>
    <${Summaries} />
    <${MoreToForget} />
    ${editing && html`<${NoteEditor} note=${editing} onClose=${() => setEditing(null)} onSaved=${() => { setEditing(null); notes.reload(); }} />`}`;
}

/** @param {string} text @param {string} wanted */
const containsAll = (text, wanted) => wanted.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

/** Where to remove what is not a note. */
function MoreToForget() {
  return html`<section class="stack summaries" aria-labelledby="forget-heading">
    <h2 id="forget-heading">Make it forget something else</h2>
    <ul class="card lines">
      <li><span>Something that was said</span><a href=${linkTo("search")}>Search for it, then Redact</a></li>
      <li><span>A whole conversation</span><a href=${linkTo("conversations")}>Open it, then Delete or Erase in its details</a></li>
      <li><span>Everything, with a receipt</span><a href=${linkTo("privacy")}>Erase everything</a></li>
    </ul>
  </section>`;
}

/** @param {{ note: any, onEdit: () => void, onGone: () => void }} props */
function NoteItem({ note, onEdit, onGone }) {
  const [repeated, setRepeated] = useState(false);
  async function forget() {
    try {
      if ((await previewOfForgetting({ what: note.id })).messages.length) return setRepeated(true);
      await call("DELETE", `v1/notes/${encodeURIComponent(note.id)}`);
      onGone();
      toast("Forgotten. No message repeats it.", { undo: async () => { await post("v1/notes", bodyOf(note)); onGone(); } });
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }
  return html`<li class=${`card note-item ${note.replaced_by ? "replaced" : ""}`}>
    <p class="note-text" dir="auto">${note.text}</p>
    <div class="row note-facts">
      <span class="muted">Noted <${Time} at=${note.remembered_at} /></span>
      ${note.replaced_by && html`<${Chip}>replaced<//>`}
      ${note.expires_at && html`<${Chip}>until ${new Date(note.expires_at).toLocaleDateString()}<//>`}
      ${(note.tags ?? []).map((/** @type {string} */ tag) => html`<${Chip} key=${tag} kind="tag">${tag}<//>`)}
      ${note.source?.conversation_id ? html`<a href=${linkTo("thread", note.source.conversation_id)}>Where it comes from</a>` : html`<span class="muted">Added by hand</span>`}
      ${may("write") && !note.replaced_by && html`<span class="row end"><${Button} kind="quiet" icon="edit" onClick=${onEdit}>Edit<//><${Button} kind="quiet" icon="trash" onClick=${forget}>Forget<//></span>`}
    </div>
    ${repeated && html`<${Forget} title="Forget this note?" action="Forget" target=${{ what: note.id }} quote=${note.text} onClose=${() => { setRepeated(false); onGone(); }}>
      <p>The note is removed for good, with the messages that you choose. This cannot be undone.</p><//>`}
  </li>`;
}

/** A changed note replaces the one on the same subject; the history keeps the earlier one. @param {{ note: any, onClose: () => void, onSaved: () => void }} props */
function NoteEditor({ note, onClose, onSaved }) {
  const [text, setText] = useState(note.text ?? "");
  const [tags, setTags] = useState((note.tags ?? []).join(", "));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  async function save() {
    try {
      await post("v1/notes", { ...bodyOf(note), text, tags: tags.split(",").map((/** @type {string} */ tag) => tag.trim()).filter(Boolean) });
      onSaved();
      toast(note.id ? "Changed. The earlier note is in the history." : "Remembered.");
    } catch (error) {
      setProblem(asProblem(error));
    }
  }
  return html`<${Dialog} title=${note.id ? "Edit the note" : "Add a note"} onClose=${onClose}>
    <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (text.trim()) void save(); }}>
      <${Field} label="Note" hint="One sentence, as you would say it">${(/** @type {string} */ id, /** @type {string} */ hint) => html`<textarea id=${id} rows="3" aria-describedby=${hint} value=${text} autofocus placeholder="I like leeks"
        onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>`}<//>
      <${TextField} label="Tags" value=${tags} onInput=${setTags} hint="Separated by commas; “important” keeps a note in every context" />
      <${ProblemNote} problem=${problem} />
      <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//><button type="submit" class="button primary" disabled=${!text.trim()}>Save</button></div>
    </form>
  <//>`;
}

/** @param {any} note */
function bodyOf(note) {
  const body = /** @type {Record<string, any>} */ ({ text: note.text ?? "" });
  for (const name of ["subject", "tags", "expires_at"]) if (note[name]?.length) body[name] = note[name];
  if (note.source?.conversation_id) body.conversation_id = note.source.conversation_id;
  if (note.source?.message_id) body.message_id = note.source.message_id;
  return body;
}

/** Summaries of the latest conversations. */
function Summaries() {
  const found = useLoad(loadSummaries, [session.owner]);
  const list = found.data ?? [];
  return html`<section class="stack summaries" aria-labelledby="summaries-heading">
    <h2 id="summaries-heading">Summaries</h2>
    <p class="muted">A summary stands for the messages that no longer fit into a context. It is removed when one of them is redacted.</p>
    <${Loading} on=${found.loading && !found.data} /><${ProblemNote} problem=${found.problem} retry=${found.reload} />
    ${found.data && !list.length && html`<p class="card muted">No conversation is long enough to need one.</p>`}
    <ul class="notes">${list.map((each) => html`<li key=${each.record.id} class="card"><div class="row spread">
      <a href=${linkTo("thread", each.record.id)}><strong>${titleOf(each.record)}</strong></a>
      <span class="muted">Covers the first ${number(each.summary.messages)} of ${plural(each.record.message_count, "message")} · by ${each.summary.by} · <${Time} at=${each.summary.made_at} /></span></div>
      <details class="fold"><summary>Read the summary</summary><div class="fold-body"><${Words} text=${each.summary.text} /></div></details></li>`)}</ul>
  </section>`;
}

/** @param {AbortSignal} signal */
async function loadSummaries(signal) {
  const page = await get("v1/conversations", { limit: 50, openings: true }, signal).then(withOpenings);
  const long = page.conversations.filter((/** @type {any} */ record) => record.message_count > 10).slice(0, 20);
  const found = await Promise.all(long.map(async (/** @type {any} */ record) => ({ record, ...(await get(`${conversationPath(record.id)}/summary`, {}, signal)) })));
  return found.filter((each) => each.summary);
}
