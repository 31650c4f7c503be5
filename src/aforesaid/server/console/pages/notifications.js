// What a participant has not read yet, by the rule of each conversation.
import { html, useState } from "../lib/html.js";
import { get, post } from "../lib/api.js";
import { previewOf } from "../lib/content.js";
import { plural, titleOf } from "../lib/format.js";
import { asProblem, useEvery, useLoad } from "../lib/hooks.js";
import { endOfLog } from "../lib/log_pages.js";
import { nameById, nameOf } from "../lib/people.js";
import { linkTo, replaceQuery } from "../lib/router.js";
import { may, session } from "../lib/session.js";
import { toast } from "../parts/dialog.js";
import { Button, Chip, Empty, Loading, PageHead, ProblemNote, SelectField, Time } from "../parts/ui.js";

const EVERY = 5000;

/** @typedef {import("../lib/people.js").Participant} Participant */

/** @param {{ query: URLSearchParams }} props */
export default function Notifications({ query }) {
  const own = session.access?.participant ?? "";
  const records = useLoad(async (signal) => (await get("v1/conversations", { limit: 500 }, signal)).conversations, [session.owner]);
  const people = peopleIn(records.data ?? []);
  const [chosen, setChosen] = useState(own || query.get("for") || "");
  const who = chosen || people[0]?.id || "";
  const found = useLoad(async (signal) => (who ? get("v1/notifications", { participant_id: own ? undefined : who, limit: 100 }, signal) : { notifications: [] }), [who, session.owner]);
  useEvery(() => { found.reload(); records.reload(); }, EVERY);
  const list = [...(found.data?.notifications ?? [])].reverse();
  const said = useLoad((signal) => messagesOf(list, signal), [list.map((each) => `${each.conversation_id}/${each.sequence}`).join()]);

  async function clear() {
    try {
      const taken = (await post("v1/notifications/take", { limit: 100, ...(own ? {} : { participant_id: who }) })).notifications;
      toast(`${plural(taken.length, "notification")} cleared.`);
      found.reload();
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }

  return html`
    <${PageHead} title="Notifications" lead="New messages of others, for one participant. Reading a conversation as that participant clears them, too.">
      ${list.length > 0 && may("write") && html`<${Button} icon="check" onClick=${clear}>Clear all<//>`}<//>
    ${!own && people.length > 0 && html`<div class="narrow"><${SelectField} label="For" value=${who} options=${people.map((each) => [each.id, nameOf(each)])} onChange=${(/** @type {string} */ id) => { setChosen(id); replaceQuery({ for: id }); }} /></div>`}
    <${ProblemNote} problem=${found.problem ?? records.problem} retry=${found.reload} /><${Loading} on=${(found.loading && !found.data) || (records.loading && !records.data)} />
    ${records.data && !who && html`<${Empty} icon="notifications" title="No participants yet"><p>Open a conversation and add the people who take part in it. Each of them then has notifications here, by their rule: all messages, mentions only, or nothing.</p><a class="button" href=${linkTo("conversations")}>All conversations</a><//>`}
    ${who && found.data && !list.length && html`<${Empty} icon="notifications" title="Nothing new"><p>${nameById(people, who)} has read everything, or chose not to be notified. The rule of a conversation is in its details, under Participants.</p><//>`}
    <ul class="passages">${list.map((/** @type {any} */ each) => html`<${One} key=${`${each.conversation_id}/${each.sequence}`} each=${each} message=${said.data?.get(`${each.conversation_id}/${each.sequence}`)} record=${(records.data ?? []).find((/** @type {any} */ one) => one.id === each.conversation_id)} />`)}</ul>`;
}

/** @param {{ each: any, record: any, message: any }} props */
function One({ each, record, message }) {
  const author = each.author ? nameById(record?.participants ?? [], each.author) : speakerOf(message);
  return html`<li class="card notification"><span class="person"><strong dir="auto">${author}</strong> <span class="muted">wrote in</span> <a dir="auto" href=${linkTo("thread", each.conversation_id, { message: each.sequence })}>${record ? titleOf(record) : "a conversation"}</a></span>
    <span class="row">${each.mentioned && html`<${Chip} kind="warn">mentioned<//>`}<span class="muted"><${Time} at=${each.said_at} /></span></span>
    ${message && html`<p class="neighbour" dir="auto">${previewOf(message)}</p>`}</li>`;
}

/** @param {any} message */
const speakerOf = (message) => (message?.role === "user" ? "The owner" : message?.agent_name || "The assistant");

/**
 * The messages of notifications, which themselves contain no words, by conversation and sequence.
 * @param {any[]} list @param {AbortSignal} signal @returns {Promise<Map<string, any>>}
 */
async function messagesOf(list, signal) {
  const found = new Map();
  await Promise.all([...new Set(list.map((each) => each.conversation_id))].map(async (id) => {
    const sequences = list.filter((each) => each.conversation_id === id).map((each) => each.sequence);
    for (const entry of await endOfLog(id, { sequences }, signal)) found.set(`${id}/${entry.sequence}`, entry.message);
  }));
  return found;
}

/** Everyone who takes part in a conversation, by name. @param {Record<string, any>[]} records @returns {Participant[]} */
function peopleIn(records) {
  const known = new Map();
  for (const record of records) for (const each of record.participants ?? []) if (each.role !== "left" && !known.has(each.id)) known.set(each.id, each);
  return [...known.values()].sort((one, other) => nameOf(one).localeCompare(nameOf(other)));
}
