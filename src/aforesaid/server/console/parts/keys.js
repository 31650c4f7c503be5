// API keys: who may come in, with which rights.
import { html, useState } from "../lib/html.js";
import { get, post } from "../lib/api.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { session, signIn } from "../lib/session.js";
import { Confirm, Dialog, toast } from "./dialog.js";
import { Button, Chip, ProblemNote, SelectField, TextField, Time } from "./ui.js";

const SPANS = /** @type {[string, string][]} */ ([["86400", "1 day"], ["2592000", "30 days"], ["31536000", "1 year"]]);
const SCOPES = /** @type {[string, string][]} */ ([["read", "Read"], ["write", "Read and write"], ["admin", "Everything"]]);

export function Keys() {
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState(/** @type {any} */ (null));
  const found = useLoad((signal) => get("v1/keys", {}, signal), []);
  const list = found.data?.keys ?? [];
  async function revoke() {
    try {
      await post(`v1/keys/${encodeURIComponent(revoking.id)}/revoke`);
      toast("Revoked. Servers refuse it within ten seconds.");
      found.reload();
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    } finally {
      setRevoking(null);
    }
  }
  return html`<section class="card keys-card" aria-labelledby="keys-heading"><div class="row spread"><h2 id="keys-heading">Keys</h2><${Button} icon="plus" onClick=${() => setMaking(true)}>Create a key<//></div>
    <${ProblemNote} problem=${found.problem} retry=${found.reload} />
    ${found.data && !list.length && html`<p class="muted">There are no keys: programs and people on this machine need none. After the first key, everyone needs one.</p>`}
    ${list.length > 0 && html`<div class="table-scroll" tabindex="0" role="region" aria-label="Keys"><table><thead><tr><th>Name</th><th>Owners</th><th>Rights</th><th>Created</th><th>State</th><th><span class="visually-hidden">Actions</span></th></tr></thead><tbody>
      ${list.map((/** @type {any} */ key) => html`<tr key=${key.id}><td>${key.name || html`<code>${key.id}</code>`}</td><td>${key.owners.join(", ").replace("*", "all")}</td><td>${key.scope}</td><td><${Time} at=${key.created_at} /></td>
        <td><${Chip} kind=${stateOf(key) === "valid" ? "good" : ""}>${stateOf(key)}<//></td><td>${stateOf(key) === "valid" && html`<${Button} kind="quiet" onClick=${() => setRevoking(key)}>Revoke<//>`}</td></tr>`)}</tbody></table></div>`}
    ${making && html`<${NewKey} isFirst=${!list.length} onClose=${() => setMaking(false)} onMade=${found.reload} />`}
    ${revoking && html`<${Confirm} title="Revoke this key?" action="Revoke" onConfirm=${revoke} onClose=${() => setRevoking(null)}><p>Programs that use <strong>${revoking.name || revoking.id}</strong> lose access within ten seconds. This cannot be undone.</p><//>`}
  </section>`;
}

/** @param {{ isFirst: boolean, onClose: () => void, onMade: () => void }} props */
function NewKey({ isFirst, onClose, onMade }) {
  const [fields, setFields] = useState({ name: "", owners: isFirst ? "*" : session.owner ?? session.access?.owner ?? "", scope: isFirst ? "admin" : "write", span: "" });
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => setFields({ ...fields, [name]: value });
  async function create() {
    try {
      const owners = fields.owners.split(",").map((/** @type {string} */ each) => each.trim()).filter(Boolean);
      const key = await post("v1/keys", { owners, scope: fields.scope, name: fields.name, ...(fields.span && { expires_in: Number(fields.span) }) });
      setMade(key);
      // From the first key on, the server refuses requests without one: go on with it.
      if (isFirst && session.access?.without_key) signIn(key.text, session.owner ?? session.access.owner);
      onMade();
    } catch (error) {
      setProblem(asProblem(error));
    }
  }
  if (made) {
    return html`<${Dialog} title="The new key" onClose=${onClose}><p>Copy it now: it is not stored and cannot be shown again.</p><pre class="secret"><code>${made.text}</code></pre>
      <div class="dialog-actions"><${Button} icon="copy" onClick=${() => navigator.clipboard.writeText(made.text).then(() => toast("Copied."), () => toast("The browser does not allow copying here.", { bad: true }))}>Copy<//><${Button} kind="primary" onClick=${onClose}>Done<//></div><//>`;
  }
  return html`<${Dialog} title="Create a key" onClose=${onClose}><form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); void create(); }}>
    ${isFirst && html`<p class="note warn">This is the first key. From now on, this server refuses everyone without a key. The console goes on with this one.</p>`}
    <${TextField} label="Name" value=${fields.name} onInput=${set("name")} placeholder="kitchen tablet" />
    <${TextField} label="Owners" value=${fields.owners} onInput=${set("owners")} hint="Separated by commas; * stands for all" />
    <${SelectField} label="Rights" value=${fields.scope} options=${SCOPES} onChange=${set("scope")} />
    <${SelectField} label="Valid for" value=${fields.span} options=${SPANS} onChange=${set("span")} any="Until revoked" />
    <${ProblemNote} problem=${problem} />
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//><button type="submit" class="button primary" disabled=${!fields.owners.trim()}>Create</button></div></form><//>`;
}

/** @param {any} key */
function stateOf(key) {
  if (key.revoked_at) return "revoked";
  return key.expires_at && Date.parse(key.expires_at) < Date.now() ? "expired" : "valid";
}
