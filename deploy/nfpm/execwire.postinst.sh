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
	# The files of the package are installed, whatever systemd says.
	systemctl daemon-reload || echo "execwire: systemctl daemon-reload failed" >&2
	systemctl try-restart execwire.service || echo "execwire: execwire.service was not restarted: see systemctl status execwire.service" >&2
fi
