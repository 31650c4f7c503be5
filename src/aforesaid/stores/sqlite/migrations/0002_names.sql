-- The caller's name for a conversation, from which its id is derived; NULL where the id was generated.

ALTER TABLE conversations ADD COLUMN name TEXT;
