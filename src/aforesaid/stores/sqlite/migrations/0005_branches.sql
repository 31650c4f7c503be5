-- The lineage of a branch, as JSON: the conversations that its log continues, the nearest first. `root` is the last of them.

ALTER TABLE conversations ADD COLUMN lineage TEXT;
ALTER TABLE conversations ADD COLUMN
    root TEXT GENERATED ALWAYS AS (json_extract(lineage, '$[#-1].conversation_id')) VIRTUAL;
CREATE INDEX conversations_by_root ON conversations (owner, root) WHERE root IS NOT NULL;
