// Two branches side by side: what they share, what each has alone, and how to bring one into the other.
import { html, useState } from "../lib/html.js";
import { conversationPath, get } from "../lib/api.js";
import { capital, plural, titleOf } from "../lib/format.js";
import { useLoad } from "../lib/hooks.js";
import { go, linkTo } from "../lib/router.js";
import { may, session } from "../lib/session.js";
import { Merge } from "../parts/merge.js";
import { MessageItem } from "../parts/message.js";
import { Button, Loading, PageHead, ProblemNote } from "../parts/ui.js";

/** @typedef {{ field: string, here: any, there: any }} Difference */

/** @param {{ id: string, query: URLSearchParams }} props */
export default function Compare({ id, query }) {
  const other = query.get("with") ?? "";
  const [merging, setMerging] = useState(false);
  const found = useLoad(async (signal) => {
    const [here, there, comparison] = await Promise.all([
      get(conversationPath(id), {}, signal), get(conversationPath(other), {}, signal), get(`${conversationPath(id)}/comparison`, { other_id: other }, signal),
    ]);
    return { here, there, comparison };
  }, [id, other, session.owner]);
  const { here, there, comparison } = found.data ?? {};
  return html`
    <${PageHead} title="Compare branches" back=${linkTo("thread", id)} lead=${comparison && `${plural(comparison.shared, "message")} in both, then each goes its own way.`}>
      ${found.data && html`<${Button} onClick=${() => go("compare", other, { with: id })}>Swap sides<//>
        ${may("write") && html`<${Button} kind="primary" onClick=${() => setMerging(true)}>Merge<//>`}`}<//>
    <${ProblemNote} problem=${found.problem} retry=${found.reload} /><${Loading} on=${found.loading && !found.data} />
    ${found.data && html`<div class="columns equal compare-sides"><${Side} record=${here} messages=${comparison.only_here} /><${Side} record=${there} messages=${comparison.only_there} /></div>
      <${Differences} differences=${comparison.differences} />`}
    ${merging && html`<${Merge} into=${here} branch=${there} differences=${comparison.differences} onClose=${() => setMerging(false)} onMerged=${() => found.reload()} />`}`;
}

/** @param {{ record: Record<string, any>, messages: Record<string, any>[] }} props */
function Side({ record, messages }) {
  return html`<section class="card" aria-label=${titleOf(record)}><h2 dir="auto"><a href=${linkTo("thread", record.id)}>${titleOf(record)}</a></h2>
    <p class="muted">${messages.length ? `${plural(messages.length, "message")} only here` : "Nothing that the other one lacks."}</p>
    <ol class="messages">${messages.map((message, index) => html`<${MessageItem} key=${message.message_id ?? index} entry=${{ message, sequence: `${record.id}-${index}` }} conversation=${record.id} participants=${record.participants} />`)}</ol></section>`;
}

/** Fields of the records that differ. @param {{ differences: Difference[] }} props */
function Differences({ differences }) {
  if (!differences.length) return null;
  return html`<section class="card"><h2>Different fields</h2><div class="table-scroll" tabindex="0" role="region" aria-label="Different fields"><table><thead><tr><th>Field</th><th>Left</th><th>Right</th></tr></thead>
    <tbody>${differences.map((each) => html`<tr key=${each.field}><th scope="row">${capital(each.field.replaceAll("_", " "))}</th><td>${shown(each.here)}</td><td>${shown(each.there)}</td></tr>`)}</tbody></table></div></section>`;
}

/** @param {any} value */
const shown = (value) => (Array.isArray(value) ? value.join(", ") : value) || "none";
