// Contacts, their conversations, and mentions that could be several people.
import { html, useRef, useState } from "../lib/html.js";
import { call, conversationPath, get, post } from "../lib/api.js";
import { plural, titleOf } from "../lib/format.js";
import { asProblem, useLoad, useSettled } from "../lib/hooks.js";
import { withOpenings } from "../lib/records.js";
import { go, linkTo } from "../lib/router.js";
import { may, session } from "../lib/session.js";
import { ContactForm, contactFacts } from "../parts/contact_form.js";
import { Confirm, Dialog, toast } from "../parts/dialog.js";
import { Button, Chip, Empty, Loading, PageHead, ProblemNote, TextField, Time } from "../parts/ui.js";

/** @param {{ id: string }} props */
export default function Clients({ id }) {
  return id ? html`<${Client} id=${id} />` : html`<${Directory} />`;
}

function Directory() {
  const [query, setQuery] = useState("");
  const [adding, setAdding] = useState(false);
  const settled = useSettled(query);
  const found = useLoad(async (signal) => (settled.trim() ? post("v1/clients/find", { query: settled, limit: 100 }) : get("v1/clients", { limit: 500 }, signal)), [settled, session.owner]);
  const contacts = found.data?.contacts ?? [];
  return html`
    <${PageHead} title="Clients" lead="People and companies that conversations are about. A message that names exactly one links its conversation.">
      ${may("write") && html`<${Import} onDone=${found.reload} /><${Button} kind="primary" icon="plus" onClick=${() => setAdding(true)}>Add a client<//>`}
    <//>
    <${Queue} />
    <section class="stack" aria-label="Contacts">
      <${TextField} label="Find a client" type="search" value=${query} onInput=${setQuery} data-search placeholder="Name, nickname, company, address, number" />
      <${ProblemNote} problem=${found.problem} retry=${found.reload} /><${Loading} on=${found.loading && !found.data} />
      ${found.data && !contacts.length && (settled ? html`<p class="card muted">No client matches “${settled}”. Misspellings are tolerated, so it is probably not there.</p>`
        : html`<${Empty} icon="clients" title="No clients yet"><p>Add one, or import a CSV file with the columns name, nicknames, company, email, phone and notes.</p><//>`)}
      <ul class="grid">${contacts.map((/** @type {any} */ each) => html`<li key=${each.id}><a class="card client-card" href=${linkTo("clients", each.id)}>
        <span class="avatar" aria-hidden="true">${initials(each.name)}</span><span><strong>${each.name}</strong><span class="muted">${contactFacts(each)}</span></span></a></li>`)}</ul>
    </section>
    ${adding && html`<${Dialog} title="Add a client" onClose=${() => setAdding(false)}><${ContactForm} contact=${{}} onCancel=${() => setAdding(false)}
      onSave=${async (/** @type {any} */ fields) => { const made = await post("v1/clients", fields); toast("Added."); go("clients", made.id); }} /><//>`}`;
}

/** Mentions that may mean several clients, to resolve by hand. */
function Queue() {
  const found = useLoad((signal) => get("v1/clients/ambiguous", { limit: 20 }, signal), [session.owner]);
  const list = found.data?.mentions ?? [];
  if (!list.length) return null;
  /** @param {any} mention @param {any} contact */
  async function resolve(mention, contact) {
    const path = `${conversationPath(mention.conversation_id)}/client`;
    try {
      if (contact) await call("PUT", path, { body: { client_id: contact.id, client_name: contact.name } });
      else await call("DELETE", path);
      toast(contact ? `Linked to ${contact.name}.` : "Not linked. It will not be asked again.", contact ? { undo: async () => { await call("DELETE", path); found.reload(); } } : {});
      found.reload();
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }
  return html`<section class="card queue" aria-labelledby="queue-heading">
    <h2 id="queue-heading">${plural(list.length, "mention")} to resolve</h2>
    <p class="muted">These messages may name several clients. Nothing was guessed.</p>
    <ul>${list.map((/** @type {any} */ each) => html`<li key=${each.conversation_id}>
      <blockquote dir="auto">${each.text} <a href=${linkTo("thread", each.conversation_id, { message: each.sequence })}>Open</a></blockquote>
      <div class="row">${each.candidates.map((/** @type {any} */ one) => html`<${Button} key=${one.contact.id} disabled=${!may("write")} onClick=${() => resolve(each, one.contact)}>${one.contact.name}${one.contact.company ? ` · ${one.contact.company}` : ""}<//>`)}
        <${Button} kind="quiet" disabled=${!may("write")} onClick=${() => resolve(each, null)}>None of these<//></div></li>`)}</ul>
  </section>`;
}

/** @param {{ onDone: () => void }} props */
function Import({ onDone }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [outcome, setOutcome] = useState(/** @type {any} */ (null));
  /** @param {Event} event */
  async function read(event) {
    const file = /** @type {HTMLInputElement} */ (event.target).files?.[0];
    if (!file) return;
    try {
      setOutcome(await call("POST", "v1/clients/import", { raw: await file.arrayBuffer(), media: "text/csv" }));
      onDone();
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    } finally {
      if (field.current) field.current.value = "";
    }
  }
  return html`<input ref=${field} class="visually-hidden" type="file" accept=".csv,text/csv" aria-label="CSV file" tabindex="-1" onChange=${read} />
    <${Button} icon="download" onClick=${() => field.current?.click()}>Import CSV<//>
    ${outcome && html`<${Dialog} title="Import" onClose=${() => setOutcome(null)}>
      <p>${plural(outcome.added.length, "client")} added, ${outcome.updated.length} changed, ${outcome.known} known already.</p>
      ${outcome.bad.length > 0 && html`<p>${plural(outcome.bad.length, "line")} could not be read:</p><ul class="plain">${outcome.bad.slice(0, 20).map((/** @type {any} */ bad) => html`<li>Line ${bad.line}: ${bad.reason}</li>`)}</ul>`}
      <div class="dialog-actions"><${Button} kind="primary" onClick=${() => setOutcome(null)}>Done<//></div><//>`}`;
}

/** @param {{ id: string }} props */
function Client({ id }) {
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  const path = `v1/clients/${encodeURIComponent(id)}`;
  const contact = useLoad((signal) => get(path, {}, signal), [id, session.owner]);
  const linked = useLoad((signal) => get("v1/conversations", { client_id: id, limit: 100, openings: true }, signal).then(withOpenings), [id, session.owner]);
  const found = contact.data;
  if (contact.problem) return html`<${PageHead} title="Client" back=${linkTo("clients")} /><${ProblemNote} problem=${contact.problem} retry=${contact.reload} />`;
  if (!found) return html`<${PageHead} title="Client" back=${linkTo("clients")} /><${Loading} on=${true} />`;
  async function remove() {
    await call("DELETE", path);
    toast("Removed. Its conversations stay.", { undo: async () => { const { id: clientId, name, nicknames, company, email, phone, notes } = found; await post("v1/clients", { client_id: clientId, name, nicknames, company, email, phone, notes }); } });
    go("clients");
  }
  const list = linked.data?.conversations ?? [];
  return html`
    <${PageHead} title=${found.name} back=${linkTo("clients")} lead=${contactFacts(found)}>
      ${may("write") && html`<${Button} icon="edit" onClick=${() => setEditing(true)}>Edit<//><${Button} kind="danger" onClick=${() => setRemoving(true)}>Remove<//>`}
    <//>
    <div class="columns"><section class="card"><h2>Contact</h2><dl class="facts open">
      ${[["Nicknames", found.nicknames?.join(", ")], ["Company", found.company], ["Email", found.email], ["Phone", found.phone], ["Notes", found.notes]].map(([name, value]) => html`<dt>${name}</dt><dd>${value || html`<span class="muted">None</span>`}</dd>`)}
      <dt>Added</dt><dd><${Time} at=${found.created_at} /></dd></dl></section>
    <section class="card"><h2>Conversations</h2>${linked.data && !list.length && html`<p class="muted">None yet. Link one in its details, or mention ${found.name} in a conversation.</p>`}
      <ul class="plain lines">${list.map((/** @type {any} */ record) => html`<li key=${record.id}><a href=${linkTo("thread", record.id)}>${titleOf(record)}</a><span class="row"><${Chip} kind=${`status-${record.status}`}>${record.status}<//><span class="muted"><${Time} at=${record.last_message_at ?? record.updated_at} /></span></span></li>`)}</ul></section></div>
    ${editing && html`<${Dialog} title="Edit the client" onClose=${() => setEditing(false)}><${ContactForm} contact=${found} onCancel=${() => setEditing(false)}
      onSave=${async (/** @type {any} */ fields) => { contact.set(await call("PATCH", path, { body: fields })); setEditing(false); toast("Saved."); }} /><//>`}
    ${removing && html`<${Confirm} title=${`Remove ${found.name}?`} action="Remove" onConfirm=${remove} onClose=${() => setRemoving(false)}><p>Its conversations stay and have no client.</p><//>`}`;
}

/** @param {string} name */
const initials = (name) => name.split(/\s+/).map((word) => [...word][0] ?? "").slice(0, 2).join("").toUpperCase();
