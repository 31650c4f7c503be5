#!/bin/sh
# Run once by the image of PostgreSQL, on a new primary: the role of the standby.
set -e
psql -v ON_ERROR_STOP=1 -v password="$REPLICATION_PASSWORD" -U postgres <<'SQL'
CREATE ROLE replicator LOGIN REPLICATION PASSWORD :'password';
SQL
echo "host replication replicator all scram-sha-256" >> "$PGDATA/pg_hba.conf"
