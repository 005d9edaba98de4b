# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For tests that read data through mounts. Sourced after lib.sh.

# Served by nginx at $nginx_url/, and the reference of what is read.
root=$tmp/root
mnt=/mnt/wfs

# make_data DIR NAME BYTES...: files that are old enough for their version to be sure.
make_data() {
	"$bin/make_data" "$@"
}

# settle PATH...: as if last written long ago.
settle() {
	touch -h -d '2020-01-01 00:00:00 UTC' "$@"
}

# size_of DIR: bytes of the files below.
size_of() {
	find "$1/" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }'
}

# reading DESCRIPTION PATTERN PATH REFERENCE [OPTIONS]: ok when every byte is right.
# What the reader printed is kept for figure.
reader_line=
reading() {
	local description=$1 status=0

	shift
	reader_line=$("$bin/reader" "$@" 2>&1) || status=$?
	if [ "$status" = 0 ]; then
		ok "$description"
	else
		not_ok "$description" "reader $* gave status $status
$reader_line
$(tail -n 5 "$wfsd_log" 2>/dev/null)"
		return 1
	fi
}

# reading_on PID_VARIABLE PATTERN PATH REFERENCE: the same in the background.
reading_on() {
	local -n _reading=$1

	shift
	"$bin/reader" "$@" >>"$tmp/reader.log" 2>&1 &
	_reading=$!
}

# figure NAME: one of the figures of the last reading.
figure() {
	sed -nE "s/.* $1=([0-9.]+).*/\1/p" <<<"$reader_line"
}

# cached FILE: bytes of it on NVMe.
cached() {
	getfattr --absolute-names --only-values -n user.wfs.cached "$1" 2>/dev/null
}

all_cached() {
	local file

	for file; do
		[ "$(cached "$file")" = "$(stat -c %s "$file")" ] || return 1
	done
}

# stored FILE...: wait until all of them are on NVMe.
stored() {
	soon 60 all_cached "$@" || {
		local file

		for file; do
			diag "$file: $(cached "$file") of $(stat -c %s "$file") bytes on NVMe"
		done
		return 1
	}
}

# part DESCRIPTOR OFFSET LENGTH: those bytes of an open file; the name of the error if it fails.
part() {
	"$bin/part" "$@"
}

# in_memory FILE: bytes of it in the page cache.
in_memory() {
	fincore -nb -o RES "$1" | tr -d ' '
}

# drop_pages: of files only: names stay known with no daemon to ask.
drop_pages() {
	sync
	echo 1 >/proc/sys/vm/drop_caches
}

# waits PID: for a page that is being brought. A killable sleep is shown as D, too.
waits() {
	grep -qE 'folio_wait|folio_put_wait|folio_lock|wfs_' "/proc/$1/stack" 2>/dev/null
}

no_sleeper() {
	! grep -l '^State:.D' /proc/[0-9]*/status 2>/dev/null | grep -q .
}

# nothing_stuck: no process in uninterruptible sleep. A disk makes one sleep so for a moment.
nothing_stuck() {
	soon 10 no_sleeper || {
		grep -l '^State:.D' /proc/[0-9]*/status | sed 's/status$/stack/' | xargs tail -n 8
		return 1
	}
}

# share FETCHED WANTED DESCRIPTION: bytes fetched are those wanted, each once.
share() {
	if [ "$2" -gt 0 ] && [ "$1" = "$2" ]; then
		ok "$3: fetched/size = 1.00"
	else
		not_ok "$3: fetched/size = 1.00" "fetched $1 bytes, wanted $2
$(awk '$1 == "GET"' "$nginx_log" | tail -n 12)"
	fi
}
