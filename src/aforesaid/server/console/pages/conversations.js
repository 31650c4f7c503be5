// The list of conversations: filters, unread counts, live changes, editing in place.
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { conversationPath, get, post } from "../lib/api.js";
import { watchChanges } from "../lib/changes.js";
import { previewOf } from "../lib/content.js";
import { number, plural, titleOf } from "../lib/format.js";
import { asProblem, useKeys, useLoad, useSettled } from "../lib/hooks.js";
import { nameById } from "../lib/people.js";
import { readRecord, withOpenings } from "../lib/records.js";
import { go, linkTo, replaceQuery } from "../lib/router.js";
import { may, newId, session } from "../lib/session.js";
import { toast } from "../parts/dialog.js";
import { ConversationFilters, FILTERS, toQuery } from "../parts/filters.js";
import { RecordEditor } from "../parts/record_editor.js";
import { Button, Chip, Empty, Loading, PageHead, ProblemNote, Time } from "../parts/ui.js";

/** @typedef {import("../lib/records.js").Conversation} Conversation */
/** @typedef {{ conversations: Conversation[], next: string | null }} Listing */

/** @param {{ query: URLSearchParams }} props */
export default function Conversations({ query }) {
  const [filters, setFilters] = useState(() => Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""])));
  const settled = useSettled(filters);
  const { data, problem, loading, reload, set } = useLoad((signal) => load(settled, null, signal), [JSON.stringify(settled), session.owner]);
  const [selected, setSelected] = useState(-1);
  const [editing, setEditing] = useState("");
  const list = data?.conversations ?? [];
  useEffect(() => replaceQuery(settled), [JSON.stringify(settled)]);
  useLiveList(data, set, reload, Object.values(settled).some(Boolean));
  useKeys({
    j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    e: () => list[selected] && setEditing(list[selected].id), n: () => void start(),
  });

  /** @param {number} by */
  function move(by) {
    const next = Math.max(0, Math.min(list.length - 1, selected + by));
    setSelected(next);
    /** @type {HTMLElement | undefined} */ (document.querySelectorAll(".conversation-link")[next])?.focus();
  }

  async function more() {
    if (!data?.next) return;
    const page = await load(settled, data.next);
    set({ conversations: [...data.conversations, ...page.conversations], next: page.next });
  }

  const isFiltered = Object.values(settled).some(Boolean);
  const unread = useMemo(() => list.reduce((sum, each) => sum + each.unread_count, 0), [list]);
  return html`
    <${PageHead} title="Conversations" lead=${lead(list.length, data?.next, unread)}>
      ${may("write") && html`<${Button} kind="primary" icon="plus" onClick=${start}>New conversation<//>`}
    <//>
    <${ConversationFilters} filters=${filters} onChange=${setFilters} />
    <${ProblemNote} problem=${problem} retry=${reload} />
    <${Loading} on=${loading && !data} />
    ${data && !list.length && html`<${NoConversations} isFiltered=${isFiltered} onReset=${() => setFilters({})} />`}
    <ol class="conversation-list" aria-label="Conversations">
      ${list.map((record, index) => html`<${Row} key=${record.id} record=${record} isSelected=${index === selected} isEditing=${editing === record.id}
        onEdit=${() => setEditing(editing === record.id ? "" : record.id)} onFocus=${() => setSelected(index)}
        onSaved=${(/** @type {Conversation} */ saved) => data && set(replaced(data, { ...saved, messages: record.messages, opening: record.opening }))} onDone=${() => setEditing("")} />`)}
    </ol>
    ${data?.next && html`<div class="more"><${Button} onClick=${more}>Show more<//></div>`}`;
}

/** @param {{ record: Conversation, isSelected: boolean, isEditing: boolean, onEdit: () => void, onFocus: () => void, onSaved: (record: Conversation) => void, onDone: () => void }} props */
function Row({ record, isSelected, isEditing, onEdit, onFocus, onSaved, onDone }) {
  const last = record.messages?.at(-1);
  return html`<li class=${`conversation ${isSelected ? "selected" : ""} ${record.unread_count ? "unread" : ""}`}>
    <div class="conversation-row">
      <a class="conversation-link" href=${linkTo("thread", record.id)} onFocus=${onFocus}>
        <span class="conversation-title">${titleOf(record)}</span>
        <span class="conversation-preview">${preview(record, last)}</span>
      </a>
      <div class="conversation-meta">
        <span class="when"><${Time} at=${record.last_message_at ?? record.updated_at} /></span>
        ${record.unread_count > 0 && html`<span class="badge" aria-label=${plural(record.unread_count, "unread message")}>${number(record.unread_count)}</span>`}
      </div>
      <div class="conversation-chips">
        <${Chip} icon=${record.channel}>${record.channel}<//>
        <${Chip} kind=${`status-${record.status}`}>${record.status}<//>
        ${record.priority !== "normal" && html`<${Chip} kind=${`priority-${record.priority}`}>${record.priority} priority<//>`}
        ${record.client_name && html`<${Chip} icon="clients">${record.client_name}<//>`}
        ${record.assigned_to && html`<${Chip}>for ${record.assigned_to}<//>`}
        ${record.tags.map((/** @type {string} */ tag) => html`<${Chip} key=${tag} kind="tag">${tag}<//>`)}
      </div>
      <${Button} kind="quiet" icon="edit" label=${`Edit ${titleOf(record)}`} aria-expanded=${isEditing} onClick=${onEdit} />
    </div>
    ${isEditing && html`<${RecordEditor} record=${record} onSaved=${onSaved} onDone=${onDone} />`}
  </li>`;
}

/** @param {{ isFiltered: boolean, onReset: () => void }} props */
function NoConversations({ isFiltered, onReset }) {
  if (isFiltered) {
    return html`<${Empty} icon="filter" title="No conversation matches these filters"><p>Remove a filter, or search the words of all messages.</p>
      <div class="row"><${Button} onClick=${onReset}>Remove all filters<//><a class="button" href=${linkTo("search")}>Search messages</a></div><//>`;
  }
  return html`<${Empty} icon="conversations" title="Nothing is stored yet">
    <p>Start a conversation and say, for example, “Remember that I like leeks.” Later, ask “What do I like?”</p>
    <p>Programs that use this server appear here as well, as soon as they store a turn.</p>
    ${may("write") && html`<${Button} kind="primary" icon="plus" onClick=${start}>Start a conversation<//>`}<//>`;
}

export async function start() {
  try {
    const record = await post("v1/conversations", { session_id: `console-${newId()}`, channel: "text" });
    go("thread", record.id);
  } catch (error) {
    toast(asProblem(error).message, { bad: true });
  }
}

/**
 * @param {Record<string, string>} filters
 * @param {string | null} after
 * @param {AbortSignal} [signal]
 * @returns {Promise<Listing>}
 */
async function load(filters, after, signal) {
  const { text, ...rest } = toQuery(filters);
  if (!text) return withOpenings(await get("v1/conversations", { ...rest, limit: 40, latest: 1, openings: true, after }, signal));
  const found = await post("v1/search/conversations", searchBody(text, rest));
  const records = await Promise.all(found.conversations.map((/** @type {any} */ each) => readOne(each.id, signal)));
  return { conversations: records.filter((record) => record && passes(record, rest)), next: null };
}

/** @param {string} text @param {Record<string, any>} rest */
function searchBody(text, rest) {
  const { client_id, status, date_from, date_to, tag } = rest;
  return { query: text, limit: 40, client_id, status, date_from, date_to, ...(tag ? { tags: tag } : {}) };
}

/** @param {Conversation} record @param {Record<string, any>} rest */
const passes = (record, rest) => ["channel", "priority", "assigned_to"].every((name) => !rest[name] || record[name] === rest[name]);

/** @param {string} id @param {AbortSignal} [signal] @returns {Promise<Conversation | null>} */
async function readOne(id, signal) {
  try {
    const [record, last] = await Promise.all([
      readRecord(id, signal),
      get(`${conversationPath(id)}/messages`, { before: "latest", limit: 1 }, signal),
    ]);
    return { ...record, messages: last.entries.map((/** @type {any} */ entry) => entry.message) };
  } catch (error) {
    if (asProblem(error).status === 404) return null;
    throw error;
  }
}

/**
 * Keep the list current: a changed conversation is read again and moves to its place.
 * @param {Listing | null} data
 * @param {(data: Listing) => void} set
 * @param {() => void} reload
 * @param {boolean} isFiltered
 */
function useLiveList(data, set, reload, isFiltered) {
  const latest = useRef({ data, isFiltered });
  latest.current = { data, isFiltered };
  const onChange = useCallback(async (/** @type {import("../lib/changes.js").Change} */ change) => {
    if (latest.current.isFiltered) return reload();
    const record = change.revision === null ? null : await readOne(change.conversation_id).catch(() => null);
    const { data: current } = latest.current;
    if (!current) return undefined;
    const others = current.conversations.filter((each) => each.id !== change.conversation_id);
    const all = record ? [record, ...others].sort((one, other) => moment(other) - moment(one)) : others;
    return set({ ...current, conversations: all });
  }, []);
  useEffect(() => {
    const abort = new AbortController();
    void watchChanges(onChange, reload, abort.signal);
    return () => abort.abort();
  }, [session.owner]);
}

/** @param {Conversation} record */
const moment = (record) => Date.parse(record.last_message_at ?? record.updated_at);

/** @param {Listing} data @param {Conversation} record @returns {Listing} */
const replaced = (data, record) => ({ ...data, conversations: data.conversations.map((each) => (each.id === record.id ? record : each)) });

/** @param {Conversation} record @param {any} last */
function preview(record, last) {
  if (!last) return record.message_count ? plural(record.message_count, "message") : "No messages yet";
  const who = last.author ? nameById(record.participants ?? [], last.author)
    : { user: "You", assistant: last.agent_name ?? "Assistant", tool: "Tool", system: "System" }[/** @type {string} */ (last.role)];
  return `${who}: ${previewOf(last) || "…"}`;
}

/** @param {number} count @param {string | null | undefined} next @param {number} unread */
function lead(count, next, unread) {
  if (!count) return "Everything that was said, newest first.";
  return `${next ? `${number(count)}+ conversations` : plural(count, "conversation")}${unread ? ` · ${plural(unread, "unread message")}` : ""}`;
}
