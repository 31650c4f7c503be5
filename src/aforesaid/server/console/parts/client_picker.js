// Link a conversation to a client by hand, or unlink it.
import { html, useState } from "../lib/html.js";
import { call, conversationPath, post } from "../lib/api.js";
import { asProblem, useLoad, useSettled } from "../lib/hooks.js";
import { linkTo } from "../lib/router.js";
import { may } from "../lib/session.js";
import { toast } from "./dialog.js";
import { Button, TextField } from "./ui.js";

/** @param {{ record: Record<string, any>, onRecord: (record: any) => void }} props */
export function ClientPicker({ record, onRecord }) {
  const [query, setQuery] = useState("");
  const [open, setOpen] = useState(false);
  const settled = useSettled(query);
  const found = useLoad(async () => (settled.trim() ? (await post("v1/clients/find", { query: settled, limit: 5 })).contacts : []), [settled]);

  /** @param {() => Promise<any>} act @param {string} done @param {() => void} [undo] */
  async function run(act, done, undo) {
    try {
      onRecord(await act());
      setOpen(false);
      setQuery("");
      toast(done, undo ? { undo } : {});
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }
  const path = `${conversationPath(record.id)}/client`;
  const link = (/** @type {string} */ id, /** @type {string} */ name) => run(() => call("PUT", path, { body: { client_id: id, client_name: name } }), `Linked to ${name}.`);
  const unlink = () => run(() => call("DELETE", path), "Unlinked. Later messages do not link it by themselves.", () => void link(record.client_id, record.client_name));
  return html`<div class="client-picker">
    <div class="row spread"><div><span class="label">Client</span>
      ${record.client_name ? html`<a href=${linkTo("clients", record.client_id)}>${record.client_name}</a>` : html`<span class="muted">None</span>`}</div>
      ${may("write") && (record.client_id ? html`<${Button} kind="quiet" onClick=${unlink}>Unlink<//>` : html`<${Button} kind="quiet" icon="link" aria-expanded=${open} onClick=${() => setOpen(!open)}>Link<//>`)}
    </div>
    ${open && html`<${TextField} label="Find a client" type="search" value=${query} onInput=${setQuery} placeholder="Name, company, number" />
      <ul class="picker-list">${(found.data ?? []).map((/** @type {any} */ each) => html`<li key=${each.id}><${Button} onClick=${() => link(each.id, each.name)}>${each.name}${each.company ? ` · ${each.company}` : ""}<//></li>`)}</ul>
      ${settled && found.data && !found.data.length && html`<p class="hint">No client matches. <a href=${linkTo("clients")}>Add one</a></p>`}`}
  </div>`;
}
