// The filters of the list of conversations. They live in the address, so a filtered list can be bookmarked.
import { html, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { plural } from "../lib/format.js";
import { useLoad } from "../lib/hooks.js";
import { CHANNELS, PRIORITIES, STATUSES } from "../lib/records.js";
import { session } from "../lib/session.js";
import { Button, SelectField, TextField } from "./ui.js";

export const FILTERS = ["text", "status", "priority", "channel", "client_id", "tag", "assigned_to", "from", "to"];

/** @param {Record<string, string>} filters @returns {Record<string, any>} */
export function toQuery(filters) {
  const { from, to, tag, ...rest } = filters;
  const tags = (tag ?? "").split(",").map((each) => each.trim()).filter(Boolean);
  return { ...given(rest), ...(tags.length ? { tag: tags } : {}), ...(from ? { date_from: startOf(from) } : {}), ...(to ? { date_to: endOf(to) } : {}) };
}

/** @param {Record<string, string>} values */
const given = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value));

/** @param {string} day */
export const startOf = (day) => new Date(`${day}T00:00:00`).toISOString();

/** @param {string} day */
export const endOf = (day) => new Date(`${day}T23:59:59.999`).toISOString();

/** @param {{ filters: Record<string, string>, onChange: (filters: Record<string, string>) => void }} props */
export function ConversationFilters({ filters, onChange }) {
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => onChange({ ...filters, [name]: value });
  const value = (/** @type {string} */ name) => filters[name] ?? "";
  const active = FILTERS.filter((name) => name !== "text" && value(name)).length;
  const [open, setOpen] = useState(active > 0);
  const clients = useLoad((signal) => get("v1/clients", { limit: 200 }, signal), [session.owner]);
  const contacts = clients.data?.contacts ?? [];
  return html`<section class="filters" aria-label="Filters">
    <div class="filters-main">
      <${TextField} label="Find a conversation" type="search" value=${value("text")} onInput=${set("text")} data-search placeholder="Words, subject, client" />
      <${SelectField} label="Status" value=${value("status")} options=${STATUSES} onChange=${set("status")} any="Any status" />
      <${Button} icon="filter" aria-expanded=${open} onClick=${() => setOpen(!open)}>${active ? plural(active, "filter") : "Filters"}<//>
    </div>
    ${open && html`<div class="filters-more">
      <${SelectField} label="Priority" value=${value("priority")} options=${PRIORITIES} onChange=${set("priority")} any="Any priority" />
      <${SelectField} label="Channel" value=${value("channel")} options=${CHANNELS} onChange=${set("channel")} any="Any channel" />
      <${SelectField} label="Client" value=${value("client_id")} onChange=${set("client_id")} any="Any client"
        options=${contacts.map((/** @type {any} */ each) => [each.id, each.name])} />
      <${TextField} label="Tags" value=${value("tag")} onInput=${set("tag")} placeholder="dinner, home" />
      <${TextField} label="Assigned to" value=${value("assigned_to")} onInput=${set("assigned_to")} />
      <${TextField} label="Active from" type="date" value=${value("from")} onInput=${set("from")} />
      <${TextField} label="Active to" type="date" value=${value("to")} onInput=${set("to")} />
      <${Button} kind="quiet" disabled=${!active && !value("text")} onClick=${() => onChange({})}>Remove all<//>
    </div>`}
  </section>`;
}
