#!/usr/bin/env bash
# Set up Aforesaid as a service: user, folders, program, first key, unit. Prints the key once.
#
#   sudo deploy/systemd/install.sh OWNER [NAME_OF_THE_KEY]
#
# Running it again upgrades the program, keeps data and keys, and creates no second key.
set -euo pipefail

owner=${1:?the owner of the first key is missing: install.sh OWNER [NAME]}
name=${2:-first}
program=${PROGRAM:-/opt/aforesaid}
state=${STATE:-/var/lib/aforesaid}
units=${UNITS:-/etc/systemd/system}
package=${PACKAGE:-'aforesaid[server,cli,client,tokens,encryption]'}
here=$(dirname "$(readlink -f "$0")")

id aforesaid >/dev/null 2>&1 || useradd --system --home "$state" aforesaid
install -d -m 0700 -o aforesaid -g aforesaid "$state" # before the key, which is kept there
[ -x "$program/bin/python" ] || python3 -m venv "$program"
"$program/bin/pip" install --quiet --upgrade "$package"
install -m 0644 "$here/aforesaid.service" "$units/aforesaid.service"

as_service() {
    sudo -u aforesaid AFORESAID_URL="sqlite:///$state/memory.db" "$program/bin/aforesaid" "$@"
}
if [ -e "$state/memory.db" ] && as_service keys list --json | grep -q '"id"'; then
    echo "Keys exist already; no new one was created."
else
    echo "The first key, which is shown only now:"
    as_service keys create --owner "$owner" --name "$name"
fi

systemctl daemon-reload
systemctl enable --now aforesaid
systemctl restart aforesaid
