// Search by words and meaning: passages with neighbours, and why each was found.
import { html, useEffect, useState } from "../lib/html.js";
import { post } from "../lib/api.js";
import { capital, fullTime, plural } from "../lib/format.js";
import { useLoad, useSettled } from "../lib/hooks.js";
import { linkTo, replaceQuery } from "../lib/router.js";
import { CHANNELS } from "../lib/records.js";
import { may, session } from "../lib/session.js";
import { endOf, startOf } from "../parts/filters.js";
import { Marked } from "../parts/marked.js";
import { Button, Chip, Empty, Loading, PageHead, ProblemNote, SelectField, TextField } from "../parts/ui.js";

const FIELDS = ["query", "role", "channel", "tag", "from", "to", "count"];
const ROLES = /** @type {[string, string][]} */ ([["user", "You"], ["assistant", "Assistant"], ["tool", "Tools"], ["system", "System"]]);

/** @param {{ query: URLSearchParams }} props */
export default function Search({ query }) {
  const [asked, setAsked] = useState(() => Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? ""])));
  const settled = useSettled(asked, 300);
  const isAsked = FIELDS.some((name) => name !== "count" && settled[name]);
  const found = useLoad(async () => (isAsked ? find(settled) : null), [JSON.stringify(settled), session.owner]);
  useEffect(() => replaceQuery(settled), [JSON.stringify(settled)]);
  useEffect(() => /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"))?.focus(), []);
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => setAsked({ ...asked, [name]: value });
  const passages = found.data?.passages ?? [];
  return html`
    <${PageHead} title="Search" lead="Ask in your own words. Results are quotations from what was said, with the reason for each." />
    <form class="search-form" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <${TextField} label="What are you looking for?" class="wide big" type="search" value=${asked.query} onInput=${set("query")} data-search placeholder="which chicken did we like last spring?" />
      <${SelectField} label="Said by" value=${asked.role} options=${ROLES} onChange=${set("role")} any="Anyone" />
      <${SelectField} label="Channel" value=${asked.channel} options=${CHANNELS} onChange=${set("channel")} any="Any channel" />
      <${TextField} label="Tag" value=${asked.tag} onInput=${set("tag")} />
      <${TextField} label="From" type="date" value=${asked.from} onInput=${set("from")} />
      <${TextField} label="To" type="date" value=${asked.to} onInput=${set("to")} />
    </form>
    <${ProblemNote} problem=${found.problem} retry=${found.reload} />
    <${Loading} on=${found.loading && isAsked && !found.data} />
    ${!isAsked && html`<${Empty} icon="search" title="Everything that was said can be found"><p>Words, names and dates work: “the roof in March”, “what did Ann want?”, “yesterday”.</p><p>Press <kbd>/</kbd> on any page to come here.</p><//>`}
    ${found.data && html`<${Outcome} findings=${found.data} />`}
    ${found.data && !passages.length && html`<${Empty} icon="search" title="Nothing was found"><p>No message matches “${settled.query}”${settled.role || settled.channel || settled.tag || settled.from || settled.to ? " with these filters" : ""}. Nothing similar is shown in its place.</p><//>`}
    <ol class="passages" aria-label="Results">${passages.map((/** @type {any} */ each) => html`<${Passage} key=${`${each.conversation_id}/${each.sequence}`} passage=${each} />`)}</ol>
    ${passages.length >= (Number(settled.count) || 10) && passages.length < 100 && html`<div class="more"><${Button} onClick=${() => set("count")(String((Number(asked.count) || 10) + 20))}>More results<//></div>`}`;
}

/** How the search was done, if not as usual. @param {{ findings: any }} props */
function Outcome({ findings }) {
  const { passages, by_meaning: byMeaning, note, degraded } = findings;
  return html`<p class="outcome" role="status">${plural(passages.length, "passage")} · searched by ${byMeaning ? "words and meaning" : "words"}
    ${note && html` · ${note}`}${degraded && " · the store is not available, so this may be incomplete"}</p>`;
}

/** @param {{ passage: any }} props */
function Passage({ passage }) {
  const { parts } = passage;
  const matched = Object.keys(parts?.matched ?? {});
  return html`<li class="card passage">
    <header><strong>${passage.speaker === "User" ? "You" : passage.speaker}</strong><time datetime=${passage.said_at} title=${fullTime(passage.said_at)}>${passage.ago}</time>
      ${passage.subject && html`<${Chip} kind="tag">${passage.subject}<//>`}${passage.client_name && html`<${Chip} icon="clients">${passage.client_name}<//>`}
      <span class="row end"><a class="button quiet small" href=${linkTo("thread", passage.conversation_id, { message: passage.sequence })}>Open in its thread</a>
        ${may("write") && html`<a class="button quiet small" href=${linkTo("thread", passage.conversation_id, { message: passage.sequence, redact: 1 })}>Redact</a>`}</span></header>
    ${passage.before && html`<p class="neighbour" dir="auto"><span>${passage.before.speaker}:</span> ${passage.before.text}</p>`}
    <p class="quote" dir="auto"><${Marked} text=${passage.text} terms=${matched} /></p>
    ${passage.after && html`<p class="neighbour" dir="auto"><span>${passage.after.speaker}:</span> ${passage.after.text}</p>`}
    ${parts && html`<${Reason} score=${passage.score} parts=${parts} />`}
  </li>`;
}

const NAMES = {
  words: "words", coverage: "share of your words", meaning: "meaning", speaker: "speaker", date: "date", person: "a person’s words",
  assistant: "the assistant’s words", conversation: "conversation", previous: "the message before", around: "your words around it",
  feedback: "similar to the best", number: "a number", wish: "a wish", asks: "only asks the same",
};
// These rank, but are no reason: every message of a person, its neighbours and its likeness to other results.
const NO_REASON = ["person", "around", "feedback"];

/** @param {{ score: number, parts: any }} props */
function Reason({ score, parts }) {
  const weights = Object.entries(NAMES).map(([name, title]) => ({ name, title, value: /** @type {number} */ (parts[name] ?? 0) })).filter((each) => Math.abs(each.value) > 0.0005);
  const shares = weights.filter((each) => each.value > 0);
  const total = shares.reduce((sum, each) => sum + each.value, 0) || 1;
  const matched = Object.keys(parts.matched ?? {});
  return html`<details class="reason"><summary>Why: ${reasonInWords(shares, matched)}</summary>
    <div class="bar" role="img" aria-label=${shares.map((each) => `${each.title} ${Math.round((100 * each.value) / total)} %`).join(", ")}>
      ${shares.map((each) => html`<span key=${each.name} class=${`part-${each.name}`} ref=${grow(each.value / total)}></span>`)}</div>
    <dl class="facts">${weights.map((each) => html`<dt key=${each.name}>${capital(each.title)}</dt><dd>${each.value.toFixed(3)}</dd>`)}
      <dt>Score</dt><dd>${score.toFixed(3)}</dd>
      ${parts.similarity != null && html`<dt>Similarity</dt><dd>${parts.similarity.toFixed(2)}</dd>`}
      ${matched.length > 0 && html`<dt>Matching terms</dt><dd>${matched.join(", ")}</dd>`}</dl>
  </details>`;
}

/** Set a width from a number: the policy forbids style attributes, not style properties. @param {number} share */
export const grow = (share) => (/** @type {HTMLElement | null} */ element) => { if (element) element.style.flexGrow = String(share); };

/** @param {{ name: string, title: string, value: number }[]} weights @param {string[]} matched */
function reasonInWords(weights, matched) {
  const covered = weights.find((each) => each.name === "coverage")?.value ?? 0;
  const reasons = weights.filter((each) => each.name !== "coverage" && !NO_REASON.includes(each.name))
    .map((each) => (each.name === "words" ? { ...each, value: each.value + covered } : each));
  const strongest = reasons.toSorted((one, other) => other.value - one.value)[0];
  if (!strongest) return "among the latest";
  const contains = `it contains ${matched.slice(0, 4).join(", ") || "your words"}`;
  if (strongest.name === "words") return contains;
  const other = strongest.name === "meaning" ? "means something similar" : `fits the ${strongest.title.replace("the ", "")}`;
  return matched.length ? `${contains} and ${other}` : `it ${other}`;
}

/** @param {Record<string, string>} asked */
function find(asked) {
  const { query, role, channel, tag, from, to, count } = asked;
  return post("v1/search", {
    query, explain: true, max_results: Number(count) || 10, timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    ...(role && { role }), ...(channel && { channel }), ...(tag && { tag }), ...(from && { date_from: startOf(from) }), ...(to && { date_to: endOf(to) }),
  });
}
