// Words of a message: paragraphs, code, lists and emphasis, built as elements. Never as HTML text.
import { html, useMemo } from "../lib/html.js";

/** @param {{ text: string }} props */
export function Words({ text }) {
  const blocks = useMemo(() => blocksOf(text), [text]);
  return html`<div class="words">${blocks.map((block, index) => html`<${Block} key=${index} block=${block} />`)}</div>`;
}

/** @typedef {{ kind: "code" | "list" | "text", lines: string[] }} BlockValue */

/** @param {{ block: BlockValue }} props */
function Block({ block }) {
  if (block.kind === "code") return html`<pre><code>${block.lines.join("\n")}</code></pre>`;
  if (block.kind === "list") return html`<ul>${block.lines.map((line, index) => html`<li key=${index}>${inline(line)}</li>`)}</ul>`;
  return html`<p>${inline(block.lines.join("\n"))}</p>`;
}

/** @param {string} text @returns {BlockValue[]} */
function blocksOf(text) {
  /** @type {BlockValue[]} */
  const blocks = [];
  let code = /** @type {string[] | null} */ (null);
  let last = /** @type {BlockValue | null} */ (null);
  for (const line of text.split("\n")) {
    if (line.startsWith("```")) {
      if (code) blocks.push({ kind: "code", lines: code });
      code = code ? null : [];
      last = null;
    } else if (code) code.push(line);
    else if (!line.trim()) last = null;
    else {
      const item = /^\s*[-*•]\s+(.*)$/.exec(line);
      const kind = item ? "list" : "text";
      if (last?.kind !== kind) blocks.push((last = { kind, lines: [] }));
      last.lines.push(item ? item[1] : line);
    }
  }
  if (code) blocks.push({ kind: "code", lines: code });
  return blocks;
}

/** Code and bold inside a line. Bounded, so that a line of a megabyte stays one text node. @param {string} text */
function inline(text) {
  if (text.length > 20_000) return text;
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((piece, index) => {
    if (index % 2 === 0) return piece;
    return piece.startsWith("`") ? html`<code key=${index}>${piece.slice(1, -1)}</code>` : html`<strong key=${index}>${piece.slice(2, -2)}</strong>`;
  });
}
