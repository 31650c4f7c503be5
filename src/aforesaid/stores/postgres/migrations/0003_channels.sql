-- A channel is any short word.

ALTER TABLE aforesaid.conversations DROP CONSTRAINT conversations_channel_check;
ALTER TABLE aforesaid.conversations
    ADD CONSTRAINT conversations_channel_check CHECK (length(channel) BETWEEN 1 AND 32);
