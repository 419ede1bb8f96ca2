#!/bin/sh
# Creates the user, and makes the units known. It enables and starts nothing: a service that
# runs commands is started by an administrator. An upgrade restarts what runs.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers execwire.conf
elif ! getent passwd execwire >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /var/lib/execwire --shell /usr/sbin/nologin execwire
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart execwire.service
fi
