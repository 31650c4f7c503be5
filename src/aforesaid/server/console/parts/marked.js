// Mark the words of a text that a search matched. The terms are word stems.
import { html } from "../lib/html.js";

const WORDS = /([\p{L}\p{N}]+)/u;
const LONGEST = 4000;

/** @param {{ text: string, terms: string[] }} props */
export function Marked({ text, terms }) {
  const stems = terms.map((term) => term.toLowerCase()).filter(Boolean);
  const pieces = text.slice(0, LONGEST).split(WORDS);
  return html`${pieces.map((piece, index) => (index % 2 && matches(piece.toLowerCase(), stems) ? html`<mark key=${index}>${piece}</mark>` : piece))}${text.length > LONGEST && "…"}`;
}

/** @param {string} word @param {string[]} stems */
function matches(word, stems) {
  return stems.some((stem) => word === stem || (stem.length > 2 && word.startsWith(stem.slice(0, Math.max(3, stem.length - 1))) && word.length - stem.length < 5));
}
