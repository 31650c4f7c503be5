// Add, change, remove or erase one participant.
import { html, useState } from "../lib/html.js";
import { call, conversationPath, get, post } from "../lib/api.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { KINDS, ROLES, RULES, nameOf, participantPath, saveParticipant } from "../lib/people.js";
import { go } from "../lib/router.js";
import { may } from "../lib/session.js";
import { Confirm, Dialog, toast } from "./dialog.js";
import { Button, ProblemNote, SelectField, TextField } from "./ui.js";

/** @typedef {import("../lib/people.js").Participant} Participant */

/** @param {{ record: Record<string, any>, participant: Participant | null, onRecord: (record: any) => void, onClose: () => void }} props */
export function ParticipantForm({ record: latest, participant, onRecord, onClose }) {
  // The record as the user saw it when the form was opened: a later change of the participant is a conflict.
  const [record] = useState(latest);
  const path = conversationPath(record.id);
  const [draft, setDraft] = useState({ id: participant?.id ?? "", name: participant?.name ?? "", kind: participant?.kind ?? "person", role: participant?.role ?? "member", may_write: participant?.may_write ?? false, history: "all", rule: "" });
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [theirs, setTheirs] = useState(/** @type {Participant | null} */ (null));
  const [erasing, setErasing] = useState(false);
  const [busy, setBusy] = useState(false);
  const rule = useLoad(async (signal) => (participant ? get(`${path}/notification-rule`, { participant_id: participant.id }, signal) : null), [participant?.id]);
  const set = (/** @type {string} */ field) => (/** @type {any} */ value) => setDraft({ ...draft, [field]: value });
  const reload = async () => onRecord(await get(path));

  /** @param {() => Promise<any>} act */
  async function run(act) {
    setBusy(true);
    try {
      await act();
      await reload();
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  const save = () => run(async () => {
    const { id, name, kind, role, may_write: writes, history } = draft;
    const changes = { name: name.trim() || undefined, kind, role, may_write: writes, ...(participant ? {} : { history }) };
    const other = await saveParticipant(record, id.trim(), changes);
    if (other) return setTheirs(other);
    if (draft.rule) await call("PUT", `${path}/notification-rule`, { body: { rule: draft.rule, participant_id: id.trim() } });
    toast(participant ? "Saved." : `${name.trim() || id.trim()} was added.`);
    return onClose();
  });

  const remove = () => run(async () => {
    const before = /** @type {Participant} */ (participant);
    await call("DELETE", participantPath(record.id, before.id));
    toast(`${nameOf(before)} has no access any more. Their messages stay.`, { undo: async () => { await call("PUT", participantPath(record.id, before.id), { body: { role: before.role } }); await reload(); } });
    onClose();
  });

  const erase = () => run(async () => {
    sessionStorage.setItem("aforesaid.receipt", JSON.stringify(await post(`v1/participants/${encodeURIComponent(draft.id)}/erase`)));
    toast("Erased from all conversations.");
    go("privacy");
  });

  if (erasing) {
    return html`<${Confirm} title=${`Erase ${draft.name || draft.id} everywhere?`} action="Erase for good" word=${draft.id} busy=${busy} onConfirm=${erase} onClose=${() => setErasing(false)}>
      <p>Everything that this person wrote in any conversation is removed, with their name and read markers. This cannot be undone. You get a receipt.</p><${ProblemNote} problem=${problem} /><//>`;
  }
  return html`<${Dialog} title=${participant ? nameOf(participant) : "Add a participant"} onClose=${onClose}>
    <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (draft.id.trim() && !busy) void save(); }}>
      ${!participant && html`<${TextField} label="Id" value=${draft.id} onInput=${set("id")} maxlength="200" autofocus hint="How your programs know the person, for example an account name. Messages are marked with it." />`}
      <${TextField} label="Name" value=${draft.name} onInput=${set("name")} maxlength="200" placeholder="Shown beside messages" />
      <div class="pair"><${SelectField} label="Kind" value=${draft.kind} options=${KINDS} onChange=${set("kind")} />
        <${SelectField} label="Role" value=${draft.role} options=${ROLES} onChange=${set("role")} /></div>
      <p class="hint">${ROLE_HINTS[draft.role]}</p>
      ${draft.role === "guest" && html`<label class="check"><input type="checkbox" checked=${draft.may_write} onChange=${(/** @type {any} */ event) => set("may_write")(event.target.checked)} />May write</label>`}
      ${!participant && html`<${SelectField} label="Sees" value=${draft.history} options=${[["all", "All messages"], ["from_now", "Messages from now on"]]} onChange=${set("history")} />`}
      ${(!participant || rule.data) && html`<${SelectField} label="Notify of" value=${draft.rule || rule.data?.rule || "all"} options=${RULES} onChange=${set("rule")} />`}
      ${theirs && html`<div class="note warn" role="alert"><p><strong>Someone changed this participant meanwhile.</strong> Now: ${nameOf(theirs)}, ${theirs.role ?? "member"}. Nothing was overwritten. Close this and look again.</p></div>`}
      <${ProblemNote} problem=${problem} />
      <div class="dialog-actions">
        ${participant && participant.role !== "left" && html`<${Button} kind="quiet" disabled=${busy} onClick=${remove}>Remove<//>`}
        ${participant && may("admin") && html`<${Button} kind="danger" onClick=${() => setErasing(true)}>Erase this person<//>`}
        <button type="submit" class="button primary" disabled=${!draft.id.trim() || busy || theirs !== null}>${participant ? "Save" : "Add"}</button></div>
    </form><//>`;
}

/** @type {Record<string, string>} */
const ROLE_HINTS = {
  manager: "Changes participants and the record, and deletes.", member: "Reads and writes.", guest: "Reads, and writes only if allowed.", left: "Has no access. The messages stay.",
};
