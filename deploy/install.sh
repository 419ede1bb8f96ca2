#!/bin/sh
# Installs execwire @VERSION@, and on Linux execwire-hub, into ~/.local/bin, or into
# EXECWIRE_INSTALL_DIR. The digest of the archive is checked before anything is unpacked.
# EXECWIRE_DOWNLOAD_URL is another place of the archives.
set -eu

version=@VERSION@
url=${EXECWIRE_DOWNLOAD_URL:-@URL@}
into=${EXECWIRE_INSTALL_DIR:-${HOME:?}/.local/bin}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

digest_of() {
	case $1 in
	@DIGESTS@
	esac
}

main() {
	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	*) fail "there is no archive for $(uname -s); on Windows use npm, or unpack the .zip" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there is no archive for the architecture $(uname -m)" ;;
	esac
	want=$(digest_of "${os}_$arch")
	[ -n "$want" ] || fail "version $version has no archive for $os on $arch"
	name=execwire_${version}_${os}_$arch

	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	if command -v curl >/dev/null; then
		curl -fsSL -o "$work/archive" "$url/$name.tar.gz" || fail "failed to download $url/$name.tar.gz"
	elif command -v wget >/dev/null; then
		wget -q -O "$work/archive" "$url/$name.tar.gz" || fail "failed to download $url/$name.tar.gz"
	else
		fail "curl or wget is needed"
	fi
	if command -v sha256sum >/dev/null; then
		got=$(sha256sum <"$work/archive")
	else
		got=$(shasum -a 256 <"$work/archive")
	fi
	[ "${got%% *}" = "$want" ] || fail "the archive has the digest ${got%% *}, and not $want: nothing was installed"
	tar -xzf "$work/archive" -C "$work"
	mkdir -p "$into"
	for program in execwire execwire-hub; do
		[ -f "$work/$name/$program" ] || continue
		# Renamed into place, because a running program cannot be overwritten.
		cp "$work/$name/$program" "$into/.$program.new"
		chmod 755 "$into/.$program.new"
		mv "$into/.$program.new" "$into/$program"
		echo "installed $into/$program"
	done
	case :$PATH: in
	*":$into:"*) ;;
	*) echo "add $into to PATH" ;;
	esac
}

main
