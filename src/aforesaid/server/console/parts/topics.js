// What the conversations of a period are about: named topics, and terms that are new.
import { html, useState } from "../lib/html.js";
import { call, get } from "../lib/api.js";
import { number, percent, plural } from "../lib/format.js";
import { asProblem, useLoad } from "../lib/hooks.js";
import { linkTo } from "../lib/router.js";
import { may, session } from "../lib/session.js";
import { Dialog, toast } from "./dialog.js";
import { RepeatTable } from "./insight_tables.js";
import { Button, Field, Loading, ProblemNote, TextField } from "./ui.js";

/** @typedef {{ name: string, examples: string[] }} Topic */

/** @param {{ from: string, by: string, names: Map<string, string> }} props */
export function TopicsCard({ from, by, names }) {
  const [editing, setEditing] = useState(/** @type {Topic | null} */ (null));
  const found = useLoad(async (signal) => {
    const [report, named] = await Promise.all([get("v1/analytics/topics", { date_from: from }, signal), get("v1/topics", {}, signal)]);
    return { report, named: /** @type {Topic[]} */ (named.topics) };
  }, [from, session.owner]);
  const { report, named = [] } = found.data ?? {};
  return html`<section class="card topics" aria-label="Topics"><div class="row spread"><h2>Topics</h2>${may("write") && html`<${Button} icon="plus" onClick=${() => setEditing({ name: "", examples: [] })}>Name a topic<//>`}</div>
    <${ProblemNote} problem=${found.problem} retry=${found.reload} /><${Loading} on=${found.loading && !found.data} />
    ${report && html`<div class="columns"><div><h3>Named topics</h3>
        ${!report.topics.length && html`<p class="muted">Name a topic with a few example sentences. Conversations that resemble them are counted here.</p>`}
        <ul class="bars">${report.topics.map((/** @type {any} */ each) => html`<li key=${each.name}><span class="bar-name" dir="auto">${may("write") ? html`<${Button} kind="quiet small name" onClick=${() => setEditing(named.find((one) => one.name === each.name) ?? null)}>${each.name}<//>` : each.name}</span>
          <progress max=${Math.max(1, report.conversations)} value=${each.conversations} aria-label=${each.name}></progress><strong title=${plural(each.conversations, "conversation")}>${percent(each.share)}</strong></li>`)}</ul>
        ${report.topics.length > 0 && html`<p class="muted">${plural(report.other, "conversation")} without a topic.</p>`}</div>
      <div><h3>New in this period</h3>${!report.new_terms.length && html`<p class="muted">No term is clearly more frequent than before. Only terms of five or more conversations are shown.</p>`}
        <ul class="plain lines">${report.new_terms.map((/** @type {any} */ each) => html`<li key=${each.term}><a dir="auto" href=${linkTo("search", "", { query: each.term })}>${each.term}</a><span class="muted">${number(each.conversations)}, before ${number(each.before)}</span></li>`)}</ul></div></div>
      <${RepeatTable} repeats=${report.repeats} by=${by} names=${names} />
      ${report.left_out && html`<p class="muted">The latest ${plural(report.conversations, "conversation")} of the period were read.</p>`}`}
    ${editing && html`<${TopicForm} topic=${editing} onClose=${() => setEditing(null)} onSaved=${found.reload} />`}
  </section>`;
}

/** @param {{ topic: Topic, onClose: () => void, onSaved: () => void }} props */
function TopicForm({ topic, onClose, onSaved }) {
  const [name, setName] = useState(topic.name);
  const [text, setText] = useState(topic.examples.join("\n"));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const examples = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const put = (/** @type {string[]} */ sentences) => call("PUT", `v1/topics/${encodeURIComponent(name.trim())}`, { body: { examples: sentences } });
  /** @param {() => Promise<any>} act @param {string} done @param {() => void} [undo] */
  async function run(act, done, undo) {
    try {
      await act();
      toast(done, undo ? { undo } : {});
      onSaved();
      onClose();
    } catch (error) {
      setProblem(asProblem(error));
    }
  }
  const remove = () => run(() => call("DELETE", `v1/topics/${encodeURIComponent(topic.name)}`), "Topic removed.", async () => { await put(topic.examples); onSaved(); });
  return html`<${Dialog} title=${topic.name || "Name a topic"} onClose=${onClose}><form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (name.trim() && examples.length) void run(() => put(examples), "Saved."); }}>
    ${!topic.name && html`<${TextField} label="Name" value=${name} onInput=${setName} maxlength="100" autofocus />`}
    <${Field} label="Example sentences" hint="One on each line, as people say them.">${(/** @type {string} */ id, /** @type {string} */ hint) => html`<textarea id=${id} aria-describedby=${hint} rows="5" dir="auto" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>`}<//>
    <${ProblemNote} problem=${problem} />
    <div class="dialog-actions">${topic.name && html`<${Button} kind="danger" onClick=${remove}>Remove<//>`}<button type="submit" class="button primary" disabled=${!name.trim() || !examples.length}>Save</button></div></form><//>`;
}
