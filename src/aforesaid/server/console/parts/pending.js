// Questions in progress, questions without an answer, and who is typing.
import { html } from "../lib/html.js";
import { previewOf } from "../lib/content.js";
import { Icon } from "./icons.js";
import { speakerOf } from "./message.js";
import { Button, Chip, Time } from "./ui.js";
import { Words } from "./words.js";

/** @param {{ pending: import("../lib/thread_state.js").Pending[], onRetry: (each: any) => void, onDiscard: (id: string) => void }} props */
export function PendingTurns({ pending, onRetry, onDiscard }) {
  return html`<ol class="messages pending">
    ${pending.map((each) => html`<li key=${each.id} class="pending-turn">
      <div class="message user"><div class="message-head"><span class="speaker">You</span>${each.spoken && html`<${Chip} icon="voice">spoken<//>`}</div>
        <div class="message-body" dir="auto">${each.question ? html`<${Words} text=${each.question} />` : html`<p class="muted">${each.spoken ? "Listening to what you said…" : "…"}</p>`}</div></div>
      ${each.state === "failed" ? html`<${Failed} each=${each} onRetry=${onRetry} onDiscard=${onDiscard} />` : html`<div class="message assistant streaming">
        <div class="message-head"><span class="speaker">Assistant</span><${Chip}>answering<//></div>
        <div class="message-body" dir="auto">${each.text ? html`<${Words} text=${each.text} />` : html`<${Dots} />`}</div></div>`}
    </li>`)}
  </ol>`;
}

/** @param {{ each: import("../lib/thread_state.js").Pending, onRetry: (each: any) => void, onDiscard: (id: string) => void }} props */
function Failed({ each, onRetry, onDiscard }) {
  return html`<div class="note bad" role="alert"><${Icon} name="warn" /><div><p>${each.problem || "The answer failed."}</p>
    <p class="next">Your message is kept. Ask again, or discard it.</p></div>
    ${each.question && html`<${Button} onClick=${() => onRetry(each)}>Ask again<//>`}<${Button} kind="quiet" onClick=${() => onDiscard(each.id)}>Discard<//></div>`;
}

/**
 * Stored questions without an answer: it failed, or it is on its way to another browser.
 * @param {{ turns: Record<string, any>[], answering: string[], participants: import("../lib/people.js").Participant[], onAsk: (turn: any) => void, onDiscard: (id: string) => void }} props
 */
export function OpenTurns({ turns, answering, participants, onAsk, onDiscard }) {
  if (!turns.length) return null;
  return html`<ol class="messages open-turns">
    ${turns.map((turn) => html`<${OpenTurn} key=${turn.id} turn=${turn} isAnswering=${answering.includes(turn.id)} participants=${participants} onAsk=${onAsk} onDiscard=${onDiscard} />`)}
  </ol>`;
}

/** @param {{ turn: Record<string, any>, isAnswering: boolean, participants: import("../lib/people.js").Participant[], onAsk: (turn: any) => void, onDiscard: (id: string) => void }} props */
function OpenTurn({ turn, isAnswering, participants, onAsk, onDiscard }) {
  const [question] = turn.messages;
  return html`<li class=${`message user ${isAnswering ? "being-answered" : "unanswered"}`}>
    <div class="message-head"><span class="speaker">${speakerOf(question, "user", participants)}</span>${!isAnswering && html`<${Chip} kind="warn">not answered<//>`}<${Time} at=${turn.opened_at} /></div>
    <div class="message-body" dir="auto"><${Words} text=${previewOf(question)} /></div>
    ${isAnswering ? html`<p class="typing" role="status"><${Dots} /><span>The answer is on its way</span></p>`
      : html`<div class="row"><${Button} onClick=${() => onAsk(turn)}>Ask again<//><${Button} kind="quiet" onClick=${() => onDiscard(turn.id)}>Discard<//></div>`}
  </li>`;
}

/** @param {{ typing: { role: string, name: string }[] }} props */
export function Typing({ typing }) {
  if (!typing.length) return null;
  const names = typing.map((each) => (each.role === "assistant" ? "The assistant" : each.name || "Someone"));
  const verb = typing.every((each) => each.role === "assistant") ? "answering" : "typing";
  return html`<p class="typing" role="status"><${Dots} /><span>${names.join(" and ")} ${names.length > 1 ? "are" : "is"} ${verb}</span></p>`;
}

export const Dots = () => html`<span class="dots" aria-hidden="true"><i></i><i></i><i></i></span>`;
