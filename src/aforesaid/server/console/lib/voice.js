// Speak answers aloud, sentence by sentence, and know how much was heard.

/** @typedef {{ cancel: () => number }} Speech */

const REASONS = /** @type {Record<string, string>} */ ({
  "not-allowed": "The browser reads aloud only after you have clicked on the page. Click on it and ask again.",
  "audio-busy": "Another program uses the loudspeaker. Close it and ask again.",
});

/** Why an answer is not read aloud, and what to do. @param {string} error */
export const whySilent = (error) => REASONS[error] ?? "This browser has no voice, so answers are not read aloud. Install a voice in the settings of your system, or use another browser.";

export const canSpeak = () => "speechSynthesis" in window;

/**
 * Read a text aloud. `cancel` stops and returns the number of characters that were heard.
 * @param {string} text
 * @param {(error: string) => void} onEnd `error` is empty if everything was heard.
 * @returns {Speech}
 */
export function speak(text, onEnd) {
  const sentences = [...new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(text)];
  let reached = 0, isOver = false;
  /** @type {SpeechSynthesisUtterance | null} Kept, because a browser may drop an utterance that has no reference. */
  let said = null;

  /** @param {string} error */
  function finish(error) {
    if (!isOver) onEnd(error);
    isOver = true;
  }

  /** @param {number} number */
  function say(number) {
    if (isOver) return;
    const sentence = sentences[number];
    if (!sentence) return finish("");
    said = new SpeechSynthesisUtterance(sentence.segment);
    // Not every voice reports words; the end of a sentence is always known.
    said.onboundary = (event) => { reached = sentence.index + event.charIndex; };
    said.onend = () => { reached = sentence.index + sentence.segment.length; say(number + 1); };
    said.onerror = (event) => finish(event.error);
    speechSynthesis.speak(said);
  }

  say(0);
  return {
    cancel: () => {
      isOver = true;
      speechSynthesis.cancel();
      // The server counts characters, the browser counts UTF-16 units.
      return [...text.slice(0, reached)].length;
    },
  };
}
