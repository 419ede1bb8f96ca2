#!/bin/sh
# The user and /var/lib/execwire stay, because the directory may have files of processes.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
