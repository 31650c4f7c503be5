// The participants of a conversation: who they are, who is here, how far they have read; add, change, remove.
import { html, useState } from "../lib/html.js";
import { ago } from "../lib/format.js";
import { initials, nameById, nameOf } from "../lib/people.js";
import { linkTo } from "../lib/router.js";
import { may, session } from "../lib/session.js";
import { ParticipantForm } from "./participant_form.js";
import { Button, Chip, SelectField } from "./ui.js";

/** @typedef {import("../lib/people.js").Participant} Participant */
/** @typedef {{ name: string, participant_id: string | null, state: "here" | "away" | "offline", typing: boolean, last_seen?: string | null }} Present */

/**
 * @param {{ record: Record<string, any>, present: Present[], markers: Record<string, string>, entries: any[], acting: Participant | null, onAct: (participant: Participant | null) => void, onRecord: (record: any) => void }} props
 */
export function People({ record, present, markers, entries, acting, onAct, onRecord }) {
  const [editing, setEditing] = useState(/** @type {Participant | "new" | null} */ (null));
  /** @type {Participant[]} */
  const all = record.participants ?? [];
  const writers = all.filter((each) => each.role !== "left");
  return html`<section class="people" aria-label="Participants">
    <div class="row spread"><h3>Participants</h3>${may("write") && html`<${Button} kind="quiet small" icon="plus" onClick=${() => setEditing("new")}>Add<//>`}</div>
    ${!all.length && html`<p class="muted">Only the owner and the assistant. Add people to show who writes, who has read, and who is here.</p>`}
    <ul>${all.map((each) => html`<li key=${each.id} class=${each.role === "left" ? "has-left" : ""}>
      <${Avatar} participant=${each} state=${stateOf(present, each.id)} />
      <span class="person"><strong dir="auto">${nameOf(each)}</strong><span class="muted">${[...facts(each, present), ...readFacts(each, markers, entries)].join(" · ")}</span></span>
      ${may("write") && html`<${Button} kind="quiet" icon="edit" label=${`Change ${nameOf(each)}`} onClick=${() => setEditing(each)} />`}
    </li>`)}</ul>
    ${writers.length > 0 && may("write") && !session.access?.participant && html`<${SelectField} label="Write as" any="The owner" value=${acting?.id ?? ""} options=${writers.map((each) => [each.id, nameOf(each)])}
      onChange=${(/** @type {string} */ id) => onAct(all.find((each) => each.id === id) ?? null)} />`}
    ${all.length > 0 && html`<p><a href=${linkTo("notifications", "", acting ? { for: acting.id } : {})}>Notifications</a></p>`}
    ${editing && html`<${ParticipantForm} record=${record} participant=${editing === "new" ? null : editing} onClose=${() => setEditing(null)} onRecord=${onRecord} />`}
  </section>`;
}

/** @param {{ participant: Participant, state: string }} props */
function Avatar({ participant, state }) {
  return html`<span class=${`avatar small ${participant.kind === "agent" ? "agent" : ""}`} aria-hidden="true">${initials(nameOf(participant))}${state !== "offline" && html`<i class=${`presence ${state}`}></i>`}</span>`;
}

/** @param {Present[]} present @param {string} id */
function stateOf(present, id) {
  const states = present.filter((each) => each.participant_id === id).map((each) => each.state);
  return states.includes("here") ? "here" : states.includes("away") ? "away" : "offline";
}

/** @param {Participant} participant @param {Present[]} present */
function facts(participant, present) {
  const kind = participant.kind === "agent" ? ["agent"] : [];
  if (participant.role === "left") return [...kind, "has left"];
  const known = present.filter((each) => each.participant_id === participant.id);
  const state = stateOf(present, participant.id);
  const seen = known.find((each) => each.last_seen)?.last_seen;
  const role = `${participant.role ?? "member"}${participant.role === "guest" ? (participant.may_write ? ", may write" : ", reads only") : ""}`;
  return [role, ...kind, known.some((each) => each.typing) ? "typing" : state === "offline" ? (seen ? `last seen ${ago(seen)}` : "") : state].filter(Boolean);
}

/** How far a participant has read. @param {Participant} participant @param {Record<string, string>} markers @param {any[]} entries */
function readFacts(participant, markers, entries) {
  const marker = markers[participant.id];
  if (!marker) return [];
  const place = entries.findIndex((entry) => entry.message.message_id === marker);
  if (place < 0) return ["read earlier messages"];
  const behind = entries.slice(place + 1).filter((entry) => entry.message.author !== participant.id).length;
  return [behind ? `${behind} unread` : "read everything"];
}

/** Names of the participants by the last message that each has read. @param {Participant[]} participants @param {Record<string, string>} markers @returns {Map<string, Participant[]>} */
export function readersByMessage(participants, markers) {
  const found = new Map();
  for (const [id, message] of Object.entries(markers)) found.set(message, [...(found.get(message) ?? []), { id, name: nameById(participants, id) }]);
  return found;
}

/** The clients that watch, as a chip. @param {{ present: Present[], participants: Participant[] }} props */
export function Here({ present, participants }) {
  const here = present.filter((each) => each.state !== "offline");
  const names = here.map((each) => nameById(participants, each.participant_id) || each.name || "someone");
  return html`<${Chip} kind="good" title=${here.length > 1 ? names.join(", ") : "Changes appear at once"}>${here.length > 1 ? `${here.length} here` : "live"}<//>`;
}
