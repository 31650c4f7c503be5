// Conversations that are related without a fork.
import { html, useState } from "../lib/html.js";
import { call, conversationPath, get, post } from "../lib/api.js";
import { titleOf } from "../lib/format.js";
import { asProblem, useLoad, useSettled } from "../lib/hooks.js";
import { linkTo } from "../lib/router.js";
import { may } from "../lib/session.js";
import { toast } from "./dialog.js";
import { Button, TextField } from "./ui.js";

/** @param {{ record: Record<string, any> }} props */
export function Links({ record }) {
  const [open, setOpen] = useState(false);
  const [query, setQuery] = useState("");
  const settled = useSettled(query);
  const path = `${conversationPath(record.id)}/links`;
  const linked = useLoad((signal) => get(path, {}, signal), [record.id, record.revision]);
  const found = useLoad(async () => (open && settled.trim() ? (await post("v1/search/conversations", { query: settled.trim(), limit: 6 })).conversations : []), [open, settled]);
  /** @type {Record<string, any>[]} */
  const all = linked.data?.conversations ?? [];
  const known = new Set([record.id, ...all.map((each) => each.id)]);

  /** @param {"PUT" | "DELETE"} method @param {Record<string, any>} other */
  async function change(method, other) {
    try {
      await call(method, path, { query: { other_id: other.id } });
      toast(method === "PUT" ? `Linked to “${titleOf(other)}”.` : "Link removed.", { undo: () => void change(method === "PUT" ? "DELETE" : "PUT", other) });
      setQuery("");
      setOpen(false);
      linked.reload();
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }
  const hits = (found.data ?? []).filter((/** @type {any} */ each) => !known.has(each.id));
  return html`<section class="links" aria-label="Related conversations">
    <div class="row spread"><h3>Related conversations</h3>${may("write") && html`<${Button} kind="quiet small" icon="link" aria-expanded=${open} onClick=${() => setOpen(!open)}>Relate<//>`}</div>
    ${!all.length && !open && html`<p class="muted">None</p>`}
    <ul class="plain">${all.map((each) => html`<li key=${each.id} class="row spread"><a dir="auto" href=${linkTo("thread", each.id)}>${titleOf(each)}</a>
      ${may("write") && html`<${Button} kind="quiet" icon="close" label=${`Remove the link to ${titleOf(each)}`} onClick=${() => change("DELETE", each)} />`}</li>`)}</ul>
    ${open && html`<${TextField} label="Find a conversation" type="search" value=${query} onInput=${setQuery} placeholder="Words, subject or client" />
      <ul class="picker-list">${hits.map((/** @type {any} */ each) => html`<li key=${each.id}><${Button} onClick=${() => change("PUT", each)}>${titleOf(each)}<//></li>`)}</ul>
      ${settled && found.data && !found.loading && !hits.length && html`<p class="hint">No other conversation matches.</p>`}`}
  </section>`;
}
