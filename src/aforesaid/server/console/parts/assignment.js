// Who handles a conversation. A change by someone else is shown, never overwritten.
import { html, useEffect, useState } from "../lib/html.js";
import { Problem, conversationPath, get, post } from "../lib/api.js";
import { asProblem } from "../lib/hooks.js";
import { nameById, nameOf } from "../lib/people.js";
import { may } from "../lib/session.js";
import { toast } from "./dialog.js";
import { Button, ProblemNote, TextField, useId } from "./ui.js";

/** @param {{ record: Record<string, any>, acting: import("../lib/people.js").Participant | null, onRecord: (record: any) => void }} props */
export function Assignment({ record, acting, onRecord }) {
  const [seen, setSeen] = useState(/** @type {string | null} */ (record.assigned_to ?? null));
  const [draft, setDraft] = useState(record.assigned_to ?? "");
  const [conflict, setConflict] = useState(/** @type {{ actual: string | null, wanted: string | null } | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const list = useId();
  const people = (record.participants ?? []).filter((/** @type {any} */ each) => each.role !== "left");
  const name = (/** @type {string | null} */ id) => nameById(record.participants ?? [], id) || "no one";
  useEffect(() => {
    // A change elsewhere is shown at once, unless the user is changing it.
    if (draft === (seen ?? "")) take(record.assigned_to ?? null);
  }, [record.assigned_to]);

  /** @param {string | null} value */
  function take(value) {
    setSeen(value);
    setDraft(value ?? "");
    setConflict(null);
  }

  /** @param {string | null} wanted @param {string | null} expected */
  async function assign(wanted, expected) {
    setProblem(null);
    try {
      const saved = await post(`${conversationPath(record.id)}/assignment`, { assignee: wanted, expected });
      take(saved.assigned_to ?? null);
      onRecord(saved);
      toast(wanted ? `Assigned to ${name(wanted)}.` : "Assigned to no one.", { undo: () => void assign(expected, wanted) });
    } catch (error) {
      const found = asProblem(error);
      if (found instanceof Problem && found.status === 409) setConflict({ actual: (await get(conversationPath(record.id))).assigned_to ?? null, wanted });
      else setProblem(found);
    }
  }

  const wanted = draft.trim() || null;
  return html`<form class="assignment" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (wanted !== seen) void assign(wanted, seen); }}>
    <${TextField} label="Assigned to" value=${draft} onInput=${setDraft} list=${list} disabled=${!may("write")} placeholder="No one yet" />
    <datalist id=${list}>${people.map((/** @type {any} */ each) => html`<option key=${each.id} value=${each.id}>${nameOf(each)}</option>`)}</datalist>
    ${may("write") && html`<div class="row">${wanted !== seen && html`<button type="submit" class="button primary">Assign</button><${Button} onClick=${() => take(seen)}>Cancel<//>`}
      ${acting && seen !== acting.id && wanted === seen && html`<${Button} onClick=${() => assign(acting.id, seen)}>Take it<//>`}</div>`}
    ${conflict && html`<div class="note warn" role="alert"><div><p><strong>${conflict.actual ? `${name(conflict.actual)} has it meanwhile.` : "It was given back meanwhile."}</strong> Nothing was changed.</p>
      <div class="row"><${Button} onClick=${() => take(conflict.actual)}>Leave it<//><${Button} kind="primary" onClick=${() => assign(conflict.wanted, conflict.actual)}>Assign to ${name(conflict.wanted)}<//></div></div></div>`}
    <${ProblemNote} problem=${problem} />
  </form>`;
}
