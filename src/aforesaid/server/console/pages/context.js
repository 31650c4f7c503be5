// Exactly what a model would receive, what is left out, and why.
import { html, useState } from "../lib/html.js";
import { call, conversationPath } from "../lib/api.js";
import { titleOf } from "../lib/format.js";
import { useLoad, useSettled } from "../lib/hooks.js";
import { endOfLog } from "../lib/log_pages.js";
import { readRecord } from "../lib/records.js";
import { linkTo } from "../lib/router.js";
import { session } from "../lib/session.js";
import { ContextView } from "../parts/context_view.js";
import { SentRequest } from "../parts/sent_request.js";
import { Button, Loading, PageHead, ProblemNote, SelectField, TextField, useId } from "../parts/ui.js";

const DIALECTS = /** @type {[string, string][]} */ ([["anthropic", "Anthropic"], ["openai_chat", "OpenAI chat"], ["openai_responses", "OpenAI responses"], ["gemini", "Gemini"], ["bedrock", "Bedrock"], ["plain", "Plain"], ["mistral", "Mistral"], ["ollama", "Ollama"], ["vllm", "vLLM"], ["azure", "Azure"], ["openrouter", "OpenRouter"]]);
const DEFAULT = { max_turns: "", max_messages: "", max_tokens: "", agent_name: "", dialect: "anthropic", preserve_system: true };

/** @param {{ id: string, query: URLSearchParams }} props */
export default function ContextPage({ id, query }) {
  const answer = query.get("answer");
  const [both, setBoth] = useState(false);
  const record = useLoad((signal) => readRecord(id, signal), [id, session.owner]);
  const title = record.data ? titleOf(record.data) : "Context";
  return html`
    <${PageHead} title=${answer ? "Why this answer?" : "What the model receives"} lead=${`${title} · in the order of the log, with what is left out`} back=${linkTo("thread", id)}>
      ${answer ? html`<a class="button" href=${linkTo("context", id)}>Try other limits</a>` : html`<${Button} icon="copy" aria-pressed=${both} kind=${both ? "on" : ""} onClick=${() => setBoth(!both)}>Compare two<//>`}
    <//>
    <${ProblemNote} problem=${record.problem} retry=${record.reload} />
    ${answer ? html`<${SentRequest} id=${id} answer=${answer} />` : record.data && html`<div class=${both ? "columns equal" : ""}>
      <${Policy} id=${id} record=${record.data} name=${both ? "A" : ""} />
      ${both && html`<${Policy} id=${id} record=${record.data} name="B" first=${{ max_messages: "6" }} />`}</div>`}`;
}

/** One policy and its context. @param {{ id: string, record: any, name: string, first?: any }} props */
function Policy({ id, record, name, first = {} }) {
  const [policy, setPolicy] = useState({ ...DEFAULT, ...first });
  const settled = useSettled(policy, 200);
  const set = (/** @type {string} */ field) => (/** @type {any} */ value) => setPolicy({ ...policy, [field]: value });
  const context = useLoad((signal) => load(id, settled, signal), [id, JSON.stringify(settled)]);
  const most = Math.max(2, record.message_count);
  return html`<section class="policy" aria-label=${name ? `Policy ${name}` : "Policy"}>
    <form class="card policy-form" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      ${name && html`<h2>Policy ${name}</h2>`}
      <${Limit} label="Turns" value=${policy.max_turns} most=${Math.max(2, Math.ceil(most / 2))} onInput=${set("max_turns")} />
      <${Limit} label="Messages" value=${policy.max_messages} most=${most} onInput=${set("max_messages")} />
      <${Limit} label="Tokens" value=${policy.max_tokens} most=${16000} step=${100} onInput=${set("max_tokens")} />
      <${TextField} label="Agent" value=${policy.agent_name} onInput=${set("agent_name")} placeholder="Any" />
      <${SelectField} label="Dialect" value=${policy.dialect} options=${DIALECTS} onChange=${set("dialect")} />
    </form>
    <${ProblemNote} problem=${context.problem} retry=${context.reload} /><${Loading} on=${context.loading && !context.data} />
    ${context.data && html`<${ContextView} report=${context.data.report} messages=${context.data.messages} entries=${context.data.entries} request=${context.data.request} />`}
  </section>`;
}

/** A limit as a slider; at its end there is none. @param {{ label: string, value: string, most: number, step?: number, onInput: (value: string) => void }} props */
function Limit({ label, value, most, step = 1, onInput }) {
  const id = useId();
  const none = most + step;
  const shown = value === "" ? "no limit" : Number(value).toLocaleString();
  return html`<div class="field"><div class="row spread"><label for=${id}>${label}</label><span class="limit" aria-hidden="true">${shown}</span></div>
    <input id=${id} type="range" min=${step} max=${none} step=${step} value=${value === "" ? none : value} aria-valuetext=${shown}
      onInput=${(/** @type {any} */ event) => onInput(Number(event.target.value) >= none ? "" : event.target.value)} /></div>`;
}

/** @param {string} id @param {typeof DEFAULT} policy @param {AbortSignal} signal */
async function load(id, policy, signal) {
  const path = `${conversationPath(id)}/context`;
  const limits = /** @type {Record<string, any>} */ ({ for_request: true });
  for (const field of /** @type {const} */ (["max_turns", "max_messages", "max_tokens"])) if (policy[field] !== "") limits[field] = Number(policy[field]);
  if (limits.max_turns === undefined && limits.max_messages === undefined && limits.max_tokens === undefined) delete limits.for_request;
  const body = { ...(Object.keys(limits).length ? { policy: limits } : { for_request: true }), ...(policy.agent_name && { agent_name: policy.agent_name }) };
  const [context, request] = await Promise.all([
    call("POST", path, { body, signal }),
    call("POST", path, { body: { ...body, for_request: undefined, dialect: policy.dialect }, signal }).catch((problem) => ({ problem: problem.message })),
  ]);
  const ids = context.messages.map((/** @type {any} */ message) => message.message_id).filter(Boolean);
  const sequences = context.report.left_out.map((/** @type {any} */ each) => each.sequence);
  return { ...context, request, entries: await endOfLog(id, { ids, sequences }, signal) };
}
