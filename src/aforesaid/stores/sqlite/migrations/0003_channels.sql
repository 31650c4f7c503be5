-- A channel is any short word. SQLite documents this way of changing a constraint: the rows stay as they are.

PRAGMA writable_schema = ON;
UPDATE sqlite_schema
SET sql = replace(
    sql,
    'CHECK (channel IN (''voice'', ''text'', ''email'', ''phone''))',
    'CHECK (length(channel) BETWEEN 1 AND 32)'
)
WHERE type = 'table' AND name = 'conversations';
PRAGMA writable_schema = RESET;
