#!/bin/sh
# Creates the user, and makes the units known. It enables and starts nothing: a service that
# runs commands is started by an administrator. An upgrade restarts what runs.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers execwire-hub.conf
elif ! getent passwd execwire-hub >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /var/lib/execwire-hub --shell /usr/sbin/nologin execwire-hub
fi
if [ -d /run/systemd/system ]; then
	# The files of the package are installed, whatever systemd says.
	systemctl daemon-reload || echo "execwire-hub: systemctl daemon-reload failed" >&2
	systemctl try-restart execwire-hub.service || echo "execwire-hub: execwire-hub.service was not restarted: see systemctl status execwire-hub.service" >&2
fi
