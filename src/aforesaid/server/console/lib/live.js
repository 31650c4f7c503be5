// One conversation over the WebSocket: resumes after a break without loss or repetition.
import { base } from "./api.js";
import { newId, session, tabId } from "./session.js";

/** @typedef {Record<string, any>} Frame */
/** @typedef {"connecting" | "live" | "waiting" | "closed"} LinkState */

const NO_ACCESS = 4401, NOT_ALLOWED = 4403, TOO_MANY = 4429;
const FIRST_PAUSE = 500, LONGEST_PAUSE = 10_000;

export class LiveThread {
  /**
   * @param {string} conversation
   * @param {{ onFrame: (frame: Frame) => void, onState: (state: LinkState, reason?: string) => void, history: number, canWrite: boolean, acting: import("./people.js").Participant | null }} options
   */
  constructor(conversation, options) {
    this.conversation = conversation;
    this.options = options;
    /** @type {Map<string, Frame>} Questions without an answer yet; sent again after a break. */
    this.waiting = new Map();
    /** @type {Frame | null} */
    this.place = null;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.pause = FIRST_PAUSE;
    this.timer = 0;
    this.ended = false;
    this.ready = false;
    this.wake = () => this.#connectNow();
    addEventListener("online", this.wake);
    this.#connect();
  }

  close() {
    this.ended = true;
    clearTimeout(this.timer);
    removeEventListener("online", this.wake);
    this.socket?.close(1000);
  }

  /**
   * Ask a question; the answer comes in frames with the returned id.
   * @param {string} text
   * @param {string} [id] The id of an earlier attempt.
   */
  ask(text, id = `c-${newId()}`) {
    const frame = { type: "text", id, text };
    this.waiting.set(id, frame);
    this.send(frame);
    return id;
  }

  /** @param {Frame} frame */
  send(frame) {
    if (!this.ready || this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  /** @param {ArrayBuffer} chunk */
  sendAudio(chunk) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(chunk);
  }

  #connect() {
    this.options.onState("connecting");
    const url = new URL("ws", base);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, protocols());
    this.socket = socket;
    socket.onopen = () => socket.send(JSON.stringify(this.#hello()));
    socket.onmessage = (event) => this.#receive(JSON.parse(event.data));
    socket.onclose = (event) => this.#closed(event);
  }

  #hello() {
    const hello = /** @type {Frame} */ ({
      type: "hello",
      conversation_id: this.conversation,
      channel: "text",
      history: this.options.history,
      presence: true,
      name: session.access?.name === "local" ? "" : session.access?.name ?? "",
    });
    const { acting, canWrite } = this.options;
    if (acting) Object.assign(hello, { participant: acting.id, name: acting.name || acting.id });
    else if (canWrite) hello.session_id = tabId();
    if (this.place) hello.place = this.place;
    return hello;
  }

  /** @param {Frame} frame */
  #receive(frame) {
    if (frame.place) this.place = frame.place;
    if (frame.type === "ping") this.socket?.send('{"type":"pong"}');
    if (frame.type === "ready") this.#isReady(frame);
    if (frame.type === "error" && !this.ready) this.socket?.close(1000, "refused");
    if (["answer.done", "answer.failed"].includes(frame.type) || (frame.type === "error" && frame.id)) this.waiting.delete(frame.id);
    this.options.onFrame(frame);
  }

  /** @param {Frame} frame */
  #isReady(frame) {
    this.ready = true;
    this.pause = FIRST_PAUSE;
    this.options.onState("live");
    const answering = new Set(frame.answering ?? []);
    for (const [id, question] of this.waiting) if (!answering.has(id)) this.send(question);
  }

  /** @param {CloseEvent} event */
  #closed(event) {
    this.ready = false;
    if (this.ended) return;
    if ([NO_ACCESS, NOT_ALLOWED].includes(event.code)) {
      this.ended = true;
      this.options.onState("closed", "access");
      return;
    }
    this.options.onState("waiting", event.code === TOO_MANY ? "busy" : undefined);
    this.timer = window.setTimeout(() => this.#connectNow(), this.pause * (0.75 + Math.random() / 2));
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
  }

  #connectNow() {
    clearTimeout(this.timer);
    if (!this.ended && (!this.socket || this.socket.readyState === WebSocket.CLOSED)) this.#connect();
  }
}

/** A browser cannot set headers on a socket, so the key travels as a subprotocol. */
function protocols() {
  const wanted = ["aforesaid.v1"];
  if (session.key) wanted.push(`aforesaid.bearer.${base64url(session.key)}`);
  if (session.owner) wanted.push(`aforesaid.owner.${base64url(session.owner)}`);
  return wanted;
}

/** @param {string} text */
function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
