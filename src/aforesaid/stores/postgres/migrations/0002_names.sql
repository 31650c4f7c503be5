-- The caller's name for a conversation, from which its id is derived; NULL where the id was generated.

ALTER TABLE aforesaid.conversations ADD COLUMN name text;
SELECT aforesaid.disable_statistics('conversations', ARRAY['name']);
