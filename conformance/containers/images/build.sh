#!/bin/sh
# Makes the images of the test servers available, by the first way that works:
#
#   1. the local tag or the official image is there already: nothing to do;
#   2. a registry answers: pull the official image;
#   3. Debian or Ubuntu, as root: build the local tag from Debian packages.
#
# Otherwise it prints one line that says what is missing and exits with 0: the tests that need the image skip with the
# same advice. With ANYLOCK_TEST_CONTAINERS=require, which CI sets, a missing image is an error.
#
# Usage: build.sh [local tag ...]      (all of the images in the file `list` by default)
set -eu

readonly SUITE=trixie
readonly PROBE_SECONDS=10

here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'images: %s\n' "$*"; }

# missing reports what cannot be had, and is fatal only where servers are required.
missing() {
	say "$*"
	if [ "${ANYLOCK_TEST_CONTAINERS:-}" = require ]; then
		exit 1
	fi
}

present() { docker image inspect "$1" >/dev/null 2>&1; }

# registry_answers asks for the manifest of an image once, not once per image: without a route a question can take long.
registry_answers() {
	if [ -z "${registry:-}" ]; then
		registry=no
		if timeout "$PROBE_SECONDS" docker manifest inspect "$1" >/dev/null 2>&1; then
			registry=yes
		fi
	fi
	[ "$registry" = yes ]
}

can_build() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

# The functions below run as conditions, where `set -e` has no effect: each step says what its failure means.

install_build_tools() {
	if command -v mmdebstrap >/dev/null && [ -e /usr/share/keyrings/debian-archive-keyring.gpg ]; then
		return
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update </dev/null || true # one broken third-party source must not stop us: the install decides
	apt-get -qq install --yes --no-install-recommends mmdebstrap debian-archive-keyring </dev/null >/dev/null
}

# build makes a minimal Debian with the packages, and imports it. The command of a container is run as it is given.
build() { # local tag, packages
	root=$(mktemp -d) || return
	mmdebstrap --quiet --variant=minbase --include="$2" \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		"$SUITE" "$root/image.tar" </dev/null &&
		docker import --change 'ENV LANG=C.UTF-8' --message "Debian $SUITE: $2" "$root/image.tar" "$1" >/dev/null
	status=$?
	rm -rf "$root"
	return "$status"
}

make_available() { # local tag, official image, packages
	if present "$1" || present "$2"; then
		say "$1: there"
	elif registry_answers "$2" && docker pull --quiet "$2" >/dev/null; then
		say "$1: pulled $2"
	elif can_build && say "$1: building it, which takes some 20 s" && install_build_tools && build "$1" "$3"; then
		say "$1: built from Debian $SUITE ($3)"
	else
		missing "$1: no registry answers and it was not built; pull $2, or run 'make images' as root on Debian or Ubuntu"
	fi
}

if ! command -v docker >/dev/null; then
	missing "no container engine; install one (on Debian: apt-get install docker.io), then run 'make images'"
	exit 0
fi
if ! timeout "$PROBE_SECONDS" docker version >/dev/null 2>&1; then
	missing "the container engine does not answer; start it (on Debian: systemctl start docker), then run 'make images'"
	exit 0
fi

grep -v '^#' "$here/list" | while read -r tag official packages; do
	case " $* " in
	"  " | *" $tag "*) make_available "$tag" "$official" "$packages" ;;
	esac
done
