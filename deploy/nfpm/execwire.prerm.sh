#!/bin/sh
# Stops the service when the package is removed, not when it is upgraded: the argument is
# remove or deconfigure of dpkg, or 0, the number of versions that rpm leaves.
set -e
case "${1:-}" in
remove | deconfigure | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now execwire.service execwire.socket
	fi
	;;
esac
