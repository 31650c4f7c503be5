// The request that an answer was given to, as it was sent.
import { html } from "../lib/html.js";
import { conversationPath, get } from "../lib/api.js";
import { fullTime } from "../lib/format.js";
import { useLoad } from "../lib/hooks.js";
import { endOfLog } from "../lib/log_pages.js";
import { linkTo } from "../lib/router.js";
import { session } from "../lib/session.js";
import { ContextView } from "./context_view.js";
import { Empty, Loading, ProblemNote } from "./ui.js";

/** @param {{ id: string, answer: string }} props */
export function SentRequest({ id, answer }) {
  const found = useLoad((signal) => load(id, answer, signal), [id, answer, session.owner]);
  if (found.problem?.status === 404) {
    return html`<${Empty} icon="context" title="The request of this answer was not kept">
      <p>Answers of agents on this server keep it. This one came from elsewhere, is older, or a message of the conversation was redacted since.</p>
      <a class="button" href=${linkTo("context", id)}>Show what a model would receive now</a><//>`;
  }
  const request = found.data?.request;
  return html`<${ProblemNote} problem=${found.problem} retry=${found.reload} /><${Loading} on=${found.loading && !found.data} />
    ${request && html`<p class="outcome">Sent to ${request.agent_name} ${fullTime(request.sent_at)}${request.steps > 1 ? `, the last of ${request.steps} requests of this turn` : ""}.</p>
      <${ContextView} report=${request.report} messages=${found.data?.messages ?? []} entries=${found.data?.entries ?? []} />
      <details class="fold raw"><summary>Limits of the window</summary><pre>${JSON.stringify(request.policy ?? "the budget of the server's settings", null, 2)}</pre></details>`}`;
}

/**
 * The kept request names messages by id; their words are read from the log.
 * @param {string} id @param {string} answer @param {AbortSignal} signal
 */
async function load(id, answer, signal) {
  const request = await get(`${conversationPath(id)}/request`, { message_id: answer }, signal);
  const entries = await endOfLog(id, { ids: request.message_ids }, signal);
  const byId = new Map(entries.map((/** @type {any} */ entry) => [entry.message.message_id, entry.message]));
  const messages = [
    ...(request.summary ? [{ role: "system", content: request.summary, tags: ["summary"] }] : []),
    ...(request.notes.length ? [{ role: "system", content: request.notes_text, tags: ["notes"] }] : []),
    ...request.message_ids.map((/** @type {string} */ name) => byId.get(name) ?? { role: "user", content: "This message is no longer in the log.", message_id: name }),
  ];
  return { request, messages, entries };
}
