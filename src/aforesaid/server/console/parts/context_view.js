// A context in one list, in log order: kept messages, omitted ones with the reason, notes, summary, tokens.
import { html, useState } from "../lib/html.js";
import { outlineOf, partsOf, pretty } from "../lib/content.js";
import { number, plural } from "../lib/format.js";
import { inOrder } from "../lib/positions.js";
import { toast } from "./dialog.js";
import { speakerOf } from "./message.js";
import { Icon } from "./icons.js";
import { Button, Chip } from "./ui.js";
import { grow } from "../pages/search.js";

const REASONS = /** @type {Record<string, string>} */ ({
  turns: "over the limit of turns", messages: "over the limit of messages", tokens: "over the limit of tokens",
  tag: "filtered by tag", agent: "for another agent", ephemeral: "marked as ephemeral", orphan: "a tool result without its call",
  duplicate: "a second result of the same call", unreadable: "cannot be read",
});
const KINDS = /** @type {[string, string][]} */ ([["prompt", "System prompt"], ["system", "System messages"], ["tools", "Tools"], ["notes", "Notes"], ["summary", "Summary"], ["history", "History"]]);

/** @param {{ report: any, messages: any[], entries: any[], request?: any }} props */
export function ContextView({ report, messages, entries, request }) {
  const [all, setAll] = useState(false);
  const rows = rowsOf(report, messages, entries);
  const left = rows.filter((row) => row.why).length + report.not_read;
  return html`<div class="context-view">
    <${TokenBar} report=${report} />
    <dl class="numbers">
      <div><dt>Sent</dt><dd>${number(messages.length)}</dd></div><div><dt>Left out</dt><dd>${number(left)}</dd></div>
      <div><dt>Stable start</dt><dd>${number(report.stable_prefix)}</dd></div><div><dt>Tokens</dt><dd>${number(totalOf(report.tokens))}</dd></div>
    </dl>
    ${(report.warnings ?? []).map((/** @type {string} */ warning) => html`<p key=${warning} class="note warn">${warning}</p>`)}
    ${report.nothing_to_send && html`<p class="note warn">There is nothing to send: ${report.nothing_to_send}</p>`}
    <p class="muted">The first ${plural(report.stable_prefix, "message")} stay the same until the window moves, so a prompt cache serves them.</p>
    ${report.not_read > 0 && html`<p class="omitted-row"><${Icon} name="filter" />${plural(report.not_read, "older message")} not read: the window was full.</p>`}
    <ol class="context-rows">${rows.map((row) => html`<${Row} key=${row.key} row=${row} whole=${all} isStable=${row.index !== null && row.index < report.stable_prefix} />`)}</ol>
    <div class="row"><${Button} kind="quiet" aria-pressed=${all} onClick=${() => setAll(!all)}>${all ? "Shorten messages" : "Show messages in full"}<//></div>
    ${request && html`<${RawRequest} request=${request} />`}
  </div>`;
}

/** @param {{ row: any, whole: boolean, isStable: boolean }} props */
function Row({ row, whole, isStable }) {
  const { message } = row;
  const text = message ? (whole || row.isMade ? fullText(message) : outlineOf(message)) : "";
  return html`<li class=${`context-row ${row.why ? "omitted" : ""} ${row.kind ?? ""} ${isStable ? "stable" : ""}`}>
    <span class="context-mark"><${Icon} name=${row.why ? "close" : "check"} /><span class="visually-hidden">${row.why ? "Left out" : "Sent"}</span></span>
    <div><div class="message-head"><span class="speaker">${row.title}</span>${row.sequence != null && html`<span>#${row.sequence}</span>`}
      ${row.why && html`<${Chip} kind="warn">${row.why}<//>`}${isStable && html`<${Chip} kind="good">stable<//>`}${row.tokens > 0 && html`<span>${plural(row.tokens, "token")}</span>`}</div>
      <p class="context-text" dir="auto">${text || html`<span class="muted">Not on this page of the log</span>`}</p></div>
  </li>`;
}

/** Tokens by kind, as a bar and as a table for those who do not see it. @param {{ report: any }} props */
function TokenBar({ report }) {
  const used = KINDS.map(([name, title]) => ({ name, title, value: report.tokens[name] ?? 0 })).filter((each) => each.value);
  const total = totalOf(report.tokens), limit = report.max_tokens ?? total;
  const reserve = Math.max(0, limit - total);
  const label = `${used.map((each) => `${each.title} ${each.value}`).join(", ")}${reserve ? `, free ${reserve}` : ""}`;
  return html`<figure class="token-bar"><figcaption>Tokens${report.max_tokens ? `: ${number(total)} of ${number(report.max_tokens)}` : `: ${number(total)}`}${report.counter ? ` · counted by ${report.counter}` : ""}</figcaption>
    <div class="bar tall" role="img" aria-label=${label || "no tokens counted"}>
      ${used.map((each) => html`<span key=${each.name} class=${`kind-${each.name}`} ref=${grow(each.value)}></span>`)}${reserve > 0 && html`<span class="kind-reserve" ref=${grow(reserve)}></span>`}</div>
    <ul class="legend">${used.map((each) => html`<li key=${each.name}><i class=${`kind-${each.name}`}></i>${each.title} ${number(each.value)}</li>`)}${reserve > 0 && html`<li><i class="kind-reserve"></i>Free ${number(reserve)}</li>`}</ul>
  </figure>`;
}

/** @param {{ request: any }} props */
export function RawRequest({ request }) {
  const text = pretty(request);
  return html`<details class="fold raw"><summary>The raw request</summary>
    <div class="fold-body"><${Button} icon="copy" onClick=${() => navigator.clipboard.writeText(text).then(() => toast("Copied."), () => toast("The browser does not allow copying here.", { bad: true }))}>Copy<//>
    <pre>${text.length > 200_000 ? `${text.slice(0, 200_000)}…` : text}</pre></div></details>`;
}

/**
 * Sent messages in the order of the request, and the omitted ones at their places in the log between them.
 * @param {any} report @param {any[]} messages @param {any[]} entries
 */
function rowsOf(report, messages, entries) {
  const byId = new Map(entries.map((entry) => [entry.message.message_id, entry]));
  const bySequence = new Map(entries.map((entry) => [entry.sequence, entry]));
  const sent = messages.map((message, index) => {
    const entry = byId.get(message.message_id);
    const made = message.tags?.includes("notes") ? "Notes" : message.tags?.includes("summary") ? "Summary" : "";
    return { key: `s${index}`, index, message, entry, sequence: entry?.sequence ?? null, isMade: Boolean(made), kind: made ? `made ${made.toLowerCase()}` : message.role, title: made || speakerOf(message, message.role), tokens: 0 };
  });
  const omitted = (report.left_out ?? []).map((/** @type {any} */ each) => {
    const entry = bySequence.get(each.sequence);
    return { key: `o${each.sequence}`, index: null, sequence: each.sequence, entry, message: entry?.message, tokens: each.tokens,
      why: REASONS[each.reason] ?? each.reason, kind: each.role, title: speakerOf(entry?.message ?? {}, each.role) };
  }).sort(byPlace);
  const rows = [];
  for (const row of sent) {
    while (row.entry && omitted.length && byPlace(omitted[0], row) < 0) rows.push(omitted.shift());
    rows.push(row);
  }
  return [...rows, ...omitted];
}

/** @param {any} one @param {any} other */
const byPlace = (one, other) => (one.entry && other.entry ? inOrder(one.entry, other.entry) : one.sequence - other.sequence);

/** @param {any} message */
const fullText = (message) => partsOf(message).map((part) => (part.kind === "text" ? part.text : `[${part.kind}${part.name ? ` ${part.name}` : ""}] ${part.text}`)).join("\n");

/** @param {Record<string, number>} tokens */
const totalOf = (tokens) => Object.values(tokens).reduce((sum, value) => sum + (value || 0), 0);
