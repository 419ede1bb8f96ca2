#!/bin/sh
# Creates the user, and makes the units known. It enables and starts nothing: a service that
# runs commands is started by an administrator. An upgrade replaces the program of a service
# that runs, whose processes go on.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers execwire.conf
elif ! getent passwd execwire >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /var/lib/execwire --shell /usr/sbin/nologin execwire
fi
if [ -d /run/systemd/system ]; then
	# The files of the package are installed, whatever systemd says.
	systemctl daemon-reload || echo "execwire: systemctl daemon-reload failed" >&2
	if systemctl is-active --quiet execwire.service; then
		kill -USR2 "$(systemctl show --property=MainPID --value execwire.service)" ||
			echo "execwire: execwire.service runs the old program: restart it" >&2
	fi
fi
