// Edit the record of a conversation in place; show a conflict instead of overwriting.
import { html, useEffect, useState } from "../lib/html.js";
import { asProblem } from "../lib/hooks.js";
import { PRIORITIES, STATUSES, reversed, saveRecord } from "../lib/records.js";
import { may } from "../lib/session.js";
import { capital } from "../lib/format.js";
import { toast } from "./dialog.js";
import { Button, Field, ProblemNote, SelectField, TextField } from "./ui.js";

/** @typedef {import("../lib/records.js").Conversation} Conversation */

/**
 * @param {{ record: Conversation, onSaved: (record: Conversation) => void, onDone?: () => void, withAssignee?: boolean }} props
 */
export function RecordEditor({ record, onSaved, onDone, withAssignee = true }) {
  const [seen, setSeen] = useState(record);
  const [draft, setDraft] = useState(() => draftOf(record));
  const [conflict, setConflict] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const changes = changesIn(seen, draft);
  const isChanged = Object.keys(changes).length > 0;
  useEffect(() => {
    // A record that changes elsewhere is shown at once, unless the user is editing it.
    if (record.revision !== seen.revision && !isChanged) take(record);
  }, [record.revision]);

  /** @param {Conversation} current */
  function take(current) {
    setSeen(current);
    setDraft(draftOf(current));
    setConflict(null);
  }

  /** @param {Conversation} base */
  async function save(base) {
    setBusy(true);
    setProblem(null);
    try {
      const outcome = await saveRecord(base, changes);
      if (outcome.theirs) setConflict(outcome);
      else finish(/** @type {Conversation} */ (outcome.saved));
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  /** @param {Conversation} saved */
  function finish(saved) {
    const undo = reversed(seen, changes);
    take(saved);
    onSaved(saved);
    toast("Saved.", {
      undo: async () => {
        const outcome = await saveRecord(saved, undo);
        if (outcome.saved) onSaved(outcome.saved);
        toast(outcome.saved ? "Changed back." : "It was changed again meanwhile, so nothing was reverted.", { bad: !outcome.saved });
      },
    });
    onDone?.();
  }

  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => setDraft({ ...draft, [name]: value });
  const readOnly = !may("write");
  return html`<form class="editor" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (isChanged) save(seen); }}>
    <${TextField} label="Subject" class="wide" value=${draft.subject} onInput=${set("subject")} disabled=${readOnly} placeholder="What it is about" />
    <${SelectField} label="Status" value=${draft.status} options=${STATUSES} onChange=${set("status")} disabled=${readOnly} />
    <${SelectField} label="Priority" value=${draft.priority} options=${PRIORITIES} onChange=${set("priority")} disabled=${readOnly} />
    <${TextField} label="Tags" value=${draft.tags} onInput=${set("tags")} disabled=${readOnly} hint="Separated by commas" />
    ${withAssignee && html`<${TextField} label="Assigned to" value=${draft.assigned_to} onInput=${set("assigned_to")} disabled=${readOnly} placeholder="No one yet" />`}
    <${Field} label="Notes" class="wide">${(/** @type {string} */ id) => html`<textarea id=${id} rows="2" value=${draft.notes} disabled=${readOnly}
      onInput=${(/** @type {any} */ event) => set("notes")(event.target.value)}></textarea>`}<//>
    ${conflict && html`<${Conflict} outcome=${conflict} mine=${changes} onTheirs=${() => take(conflict.theirs)}
      onMine=${() => { const base = conflict.theirs; setConflict(null); save(base); }} />`}
    <${ProblemNote} problem=${problem} />
    ${!readOnly && html`<div class="editor-actions wide">
      <button type="submit" class="button primary" disabled=${!isChanged || busy || conflict !== null}>Save</button>
      <${Button} onClick=${() => { take(seen); onDone?.(); }} disabled=${!isChanged && !onDone}>Cancel<//>
    </div>`}
  </form>`;
}

/** @param {{ outcome: any, mine: any, onTheirs: () => void, onMine: () => void }} props */
function Conflict({ outcome, mine, onTheirs, onMine }) {
  return html`<div class="note warn wide" role="alert"><div>
    <p><strong>Someone changed this meanwhile.</strong> Nothing was overwritten.</p>
    <table class="compare"><thead><tr><th>Field</th><th>Theirs</th><th>Yours</th></tr></thead><tbody>
      ${outcome.fields.map((/** @type {string} */ name) => html`<tr key=${name}><td>${capital(name.replaceAll("_", " "))}</td>
        <td>${show(outcome.theirs[name])}</td><td>${show(mine[name])}</td></tr>`)}
    </tbody></table>
    <div class="row"><${Button} onClick=${onTheirs}>Keep theirs<//><${Button} kind="primary" onClick=${onMine}>Save mine<//></div>
  </div></div>`;
}

/** @param {any} value */
const show = (value) => (Array.isArray(value) ? value.join(", ") : value) || "none";

/** @param {Conversation} record */
function draftOf(record) {
  return {
    subject: record.subject ?? "",
    status: record.status,
    priority: record.priority,
    tags: record.tags.join(", "),
    assigned_to: record.assigned_to ?? "",
    notes: record.notes ?? "",
  };
}

/**
 * @param {Conversation} seen
 * @param {ReturnType<typeof draftOf>} draft
 */
function changesIn(seen, draft) {
  const before = draftOf(seen);
  /** @type {Record<string, any>} */
  const changes = {};
  for (const name of /** @type {(keyof typeof before)[]} */ (Object.keys(before))) {
    if (draft[name].trim() === before[name]) continue;
    if (name === "tags") changes.tags = draft.tags.split(",").map((/** @type {string} */ tag) => tag.trim()).filter(Boolean);
    else changes[name] = draft[name].trim() || null;
  }
  return changes;
}
