// Unsent words by conversation, so that leaving a thread does not lose them; questions that a new branch asks first.

/** @type {Map<string, string>} */
const drafts = new Map();

/** @param {string} conversation */
export const draftOf = (conversation) => drafts.get(conversation) ?? "";

/**
 * @param {string} conversation
 * @param {string} text
 */
export function keepDraft(conversation, text) {
  if (text) drafts.set(conversation, text);
  else drafts.delete(conversation);
}

/** @type {Map<string, string>} */
const questions = new Map();

/**
 * Leave a question that the thread of a conversation asks when it opens.
 * @param {string} conversation
 * @param {string} text
 */
export const leaveQuestion = (conversation, text) => void questions.set(conversation, text);

/** Take the question, once. @param {string} conversation */
export function takeQuestion(conversation) {
  const text = questions.get(conversation);
  questions.delete(conversation);
  return text;
}

export function forgetDrafts() {
  drafts.clear();
  questions.clear();
}
