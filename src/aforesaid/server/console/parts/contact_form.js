// The fields of a contact.
import { html, useState } from "../lib/html.js";
import { asProblem } from "../lib/hooks.js";
import { Button, ProblemNote, TextField } from "./ui.js";

const FIELDS = ["name", "nicknames", "company", "email", "phone", "notes"];

/** @param {any} contact */
export const contactFacts = (contact) => [contact.company, contact.email, contact.phone].filter(Boolean).join(" · ") || "No further details";

/** @param {{ contact: any, onSave: (fields: any) => Promise<void>, onCancel: () => void }} props */
export function ContactForm({ contact, onSave, onCancel }) {
  const [values, setValues] = useState(() => Object.fromEntries(FIELDS.map((name) => [name, name === "nicknames" ? (contact.nicknames ?? []).join(", ") : contact[name] ?? ""])));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => setValues({ ...values, [name]: value });
  async function save() {
    try {
      await onSave(fieldsOf(values, contact));
    } catch (error) {
      setProblem(asProblem(error));
    }
  }
  return html`<form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (values.name.trim()) void save(); }}>
    <${TextField} label="Name" value=${values.name} onInput=${set("name")} autofocus />
    <${TextField} label="Nicknames" value=${values.nicknames} onInput=${set("nicknames")} hint="Separated by commas" />
    <${TextField} label="Company" value=${values.company} onInput=${set("company")} />
    <${TextField} label="Email" type="email" value=${values.email} onInput=${set("email")} />
    <${TextField} label="Phone" type="tel" value=${values.phone} onInput=${set("phone")} />
    <${TextField} label="Notes" value=${values.notes} onInput=${set("notes")} />
    <${ProblemNote} problem=${problem} />
    <div class="dialog-actions"><${Button} onClick=${onCancel}>Cancel<//><button type="submit" class="button primary" disabled=${!values.name.trim()}>Save</button></div>
  </form>`;
}

/** Only changed fields for a known contact; a field that was emptied is cleared. @param {Record<string, string>} values @param {any} contact */
function fieldsOf(values, contact) {
  /** @type {Record<string, any>} */
  const fields = {};
  for (const name of FIELDS) {
    const text = values[name].trim();
    const value = name === "nicknames" ? text.split(",").map((each) => each.trim()).filter(Boolean) : text;
    const before = contact[name] ?? (name === "nicknames" ? [] : "");
    if (JSON.stringify(value) !== JSON.stringify(before)) fields[name] = value.length ? value : null;
  }
  return contact.id ? fields : Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}
