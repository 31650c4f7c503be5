// Unsent words by conversation, so that leaving a thread does not lose them.

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

export const forgetDrafts = () => drafts.clear();
