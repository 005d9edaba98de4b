# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Shared by the scripts in vm/ and tests/run on the host. Sourced, never run.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Built and downloaded things that outlive the tree; safe to delete at any time.
cache=${WFS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wfs}

# Started by make or not: what was said to one make is no business of the makes started here.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES

# note TEXT: progress for people. Standard output is kept for results.
note() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# die [STATUS] TEXT: say why and leave.
die() {
	local status=1

	if [[ $1 =~ ^[0-9]+$ ]]; then
		status=$1
		shift
	fi
	note "$*"
	exit "$status"
}

# lock NAME: one process at a time makes NAME; held until the script ends.
# The descriptor is closed for children by those that leave any behind.
lock() {
	mkdir -p "$cache/locks"
	exec {lock_fd}>"$cache/locks/$1"
	flock "$lock_fd"
}

# unlock: give the last lock back.
unlock() {
	exec {lock_fd}>&-
}

# hash_of TEXT...: 16 digits that name what the texts say.
hash_of() {
	printf '%s\0' "$@" | sha256sum | cut -c1-16
}

# fetch_deb PACKAGE VERSION: download a package into the cache and print its path.
fetch_deb() {
	local package=$1 version=$2 deb dir=$cache/deb

	mkdir -p "$dir"
	deb=$(find "$dir" -name "${package}_${version//:/%3a}_*.deb" -print -quit)
	if [ -z "$deb" ]; then
		note "downloading $package $version"
		(cd "$dir" && apt-get download -qq -o APT::Sandbox::User=root "$package=$version" >&2) ||
			return 1
		deb=$(find "$dir" -name "${package}_${version//:/%3a}_*.deb" -print -quit)
	fi
	[ -n "$deb" ] && echo "$deb"
}
