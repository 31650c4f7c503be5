// What a stored message says, whatever dialect it has: text, tool calls, tool results, pictures, thinking.

/** @typedef {{ kind: "text" | "call" | "result" | "image" | "thinking" | "other", text: string, name?: string, id?: string, failed?: boolean, blob?: { sha256: string, media: string } }} Part */
/** @typedef {Record<string, any>} Message */

/**
 * @param {Message} message
 * @returns {Part[]}
 */
export function partsOf(message) {
  const extra = message.extra ?? message;
  const parts = message.role === "tool" ? [resultPart(message, extra)] : contentParts(message.content);
  for (const call of asList(extra.tool_calls)) parts.push(callPart(call.function ?? call, call.id));
  if (!message.content && typeof extra.type === "string") parts.push(...blockParts(extra));
  return parts.filter((part) => part.text !== "" || part.kind !== "text");
}

/**
 * The words of a message in one line, for previews.
 * @param {Message} message
 */
export function previewOf(message) {
  const parts = partsOf(message);
  const line = lineOf(parts);
  return line || (parts[0] ? titleOf(parts[0]) : "");
}

/**
 * The words of a message in one line, then its calls and results, each shortened.
 * @param {Message} message
 */
export function outlineOf(message) {
  const parts = partsOf(message);
  const others = parts.filter((part) => part.kind !== "text").map((part) => `${titleOf(part)} ${part.kind === "image" ? "" : shortened(part.text)}`.trim());
  return [lineOf(parts), ...others].filter(Boolean).join("\n");
}

/** @param {Part[]} parts */
function lineOf(parts) {
  const words = parts.filter((part) => part.kind === "text").map((part) => part.text).join(" ");
  return shortened(words.replace(/\s*\n\s*(?:[-*•]|\d+[.)]) +/g, " · ").replace(/\*\*|^#+ +/gm, "").replace(/\s+/g, " ").replace(/: · /g, ": "));
}

/** @param {Part} part */
const titleOf = (part) => ({ call: `Calls ${part.name}`, result: part.failed ? "Tool failed" : "Tool result", image: "Picture", thinking: "Thinking" }[/** @type {string} */ (part.kind)] ?? "");

/** @param {string} text */
function shortened(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 240 ? `${line.slice(0, 240)}…` : line;
}

/**
 * All words of a message, as they were written.
 * @param {Message} message
 */
export const wordsOf = (message) => partsOf(message).filter((part) => part.kind === "text").map((part) => part.text).join("\n");

/**
 * The first words of the user in the first messages of a log, as a title.
 * @param {Record<string, any>[]} entries
 */
export function openingOf(entries) {
  const said = entries.slice(0, 4).filter(({ message, unreadable }) => !unreadable && message.role === "user" && !message.tags?.includes("redacted"));
  const words = said.map(({ message }) => wordsOf(message).replace("[Image sent: photo]", "").replace(/\s+/g, " ").trim()).find(Boolean) ?? "";
  return words.length > 60 ? `${words.slice(0, 60).replace(/ [^ ]*$/, "")}…` : words;
}

/** @param {any} content @returns {Part[]} */
function contentParts(content) {
  if (content === null || content === undefined) return [];
  if (typeof content === "string") return [{ kind: "text", text: content }];
  if (Array.isArray(content)) return content.flatMap(blockParts);
  return [{ kind: "other", text: pretty(content) }];
}

/** @param {any} block @returns {Part[]} */
function blockParts(block) {
  if (typeof block === "string") return [{ kind: "text", text: block }];
  if (block === null || typeof block !== "object") return [{ kind: "other", text: pretty(block) }];
  const known = BLOCKS[block.type] ?? (block.toolUse ? BLOCKS.toolUse : block.toolResult ? BLOCKS.toolResult : null);
  if (known) return known(block);
  if (typeof block.text === "string") return [{ kind: "text", text: block.text }];
  if (block.image || block.image_url || block.source) return [imagePart(block)];
  return [{ kind: "other", text: pretty(block) }];
}

/** @type {Record<string, (block: any) => Part[]>} */
const BLOCKS = {
  tool_use: (block) => [callPart({ name: block.name, arguments: block.input }, block.id)],
  tool_result: (block) => [{ kind: "result", id: block.tool_use_id, failed: block.is_error === true, text: plain(block.content) }],
  function_call: (block) => [callPart(block, block.call_id)],
  custom_tool_call: (block) => [callPart({ name: block.name, arguments: block.input }, block.call_id)],
  function_call_output: (block) => [{ kind: "result", id: block.call_id, text: plain(block.output) }],
  custom_tool_call_output: (block) => [{ kind: "result", id: block.call_id, text: plain(block.output) }],
  toolUse: (block) => [callPart({ name: block.toolUse.name, arguments: block.toolUse.input }, block.toolUse.toolUseId)],
  toolResult: (block) => [{
    kind: "result", id: block.toolResult.toolUseId, failed: block.toolResult.status === "error", text: plain(block.toolResult.content),
  }],
  thinking: (block) => [{ kind: "thinking", text: block.thinking ?? "" }],
  reasoning: (block) => [{ kind: "thinking", text: plain(block.summary ?? block.content ?? "") }],
  redacted_thinking: () => [{ kind: "thinking", text: "Not readable for people." }],
  image: (block) => [imagePart(block)],
  image_url: (block) => [imagePart(block)],
  input_image: (block) => [imagePart(block)],
  message: (block) => contentParts(block.content),
  aforesaid_blob: (block) => [{ kind: "image", text: "", ...(isImage(block.media_type) && { blob: { sha256: String(block.sha256), media: block.media_type } }) }],
};

/** @param {any} call @param {string} [id] @returns {Part} */
function callPart(call, id) {
  return { kind: "call", name: String(call?.name ?? "tool"), id, text: pretty(call?.arguments ?? {}) };
}

/** @param {Message} message @param {Record<string, any>} extra @returns {Part} */
function resultPart(message, extra) {
  return { kind: "result", id: extra.tool_call_id, text: plain(message.content), failed: extra.is_error === true };
}

/**
 * A picture inside the message becomes a data address; one elsewhere is named, not loaded.
 * @param {any} block
 * @returns {Part}
 */
function imagePart(block) {
  const source = block.source ?? {};
  if (source.type === "base64" && isImage(source.media_type)) return { kind: "image", text: `data:${source.media_type};base64,${source.data}` };
  const url = source.url ?? block.image_url?.url ?? block.image_url ?? block.url ?? "";
  return { kind: "image", text: String(url) };
}

/** @param {unknown} media */
const isImage = (media) => /^image\/(png|jpeg|gif|webp)$/.test(String(media));

/** @param {any} content */
function plain(content) {
  const parts = contentParts(content);
  return parts.every((part) => part.kind === "text") ? parts.map((part) => part.text).join("\n") : pretty(content);
}

/** @param {any} value */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

/** @param {unknown} value @returns {any[]} */
const asList = (value) => (Array.isArray(value) ? value : []);
