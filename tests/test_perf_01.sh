#!/bin/bash
# SPDX-License-Identifier: MIT
# group: perf
# kernels: 6.1 6.12
# timeout: 400
# alone: yes
#
# Beside XFS on the same disk: page-cache read() within 5 %, NVMe read() at least 0.7
# times as fast. Medians of interleaved rounds; three attempts, for a busy machine.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

size=268435456
xfs=/var/cache/wfs/reference
mkdir -p /var/cache/wfs/cache "$xfs"
make_data "$xfs" big "$size"
configure "[cache]
dir = /var/cache/wfs/cache"
require start_wfsd
require mount_wfs "file://$xfs" "$mnt"
reading "cold" eager "$mnt/big" "$xfs/big"
check "it gets stored" stored "$mnt/big"

# rate FILE: of read() of 1 MiB, in MB/s.
rate() {
	"$bin/reader" time "$1" "$xfs/big" | sed -nE 's/.* rate=([0-9]+).*/\1/p'
}
median() {
	sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
# compare DROP ROUNDS: the median rates of wfs and XFS, and their ratio.
compare() {
	local drop=$1 rounds=$2 i

	: >"$tmp/wfs"
	: >"$tmp/xfs"
	[ "$drop" = yes ] || rate "$mnt/big" >"$tmp/warm-up"
	[ "$drop" = yes ] || rate "$xfs/big" >"$tmp/warm-up"
	for ((i = 0; i < rounds; i++)); do
		[ "$drop" = no ] || drop_caches
		rate "$xfs/big" >>"$tmp/xfs"
		[ "$drop" = no ] || drop_caches
		rate "$mnt/big" >>"$tmp/wfs"
	done
	awk -v w="$(median <"$tmp/wfs")" -v x="$(median <"$tmp/xfs")" \
		'BEGIN { printf "%.3f %d %d\n", w / x, w, x }'
}
# attempt DROP WANTED DESCRIPTION
attempt() {
	local ratio w x try

	for try in 1 2 3; do
		read -r ratio w x < <(compare "$1" 5)
		diag "$3, attempt $try: wfs $w MB/s, XFS $x MB/s"
		awk -v r="$ratio" -v wanted="$2" 'BEGIN { exit !(r >= wanted) }' && break
	done
	at_least "$ratio" "$2" "$3: rate compared with XFS"
}

attempt no 0.95 "page cache"
attempt yes 0.7 "NVMe"
