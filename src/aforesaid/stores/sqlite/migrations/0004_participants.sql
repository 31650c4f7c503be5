-- The people and agents of a conversation as JSON; NULL where only the owner uses it.

ALTER TABLE conversations ADD COLUMN participants TEXT;
