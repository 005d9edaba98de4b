#!/bin/bash
# SPDX-License-Identifier: MIT
# group: workload
# kernels: 6.1 6.12
# timeout: 300
#
# Programs that read parts: what they do not need is not fetched, and what they read
# again is not fetched again.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root/data" one 33554432 two 41943051
for pattern in moe-rows wds-random rowgroup seek tail-first gguf-header; do
	ln -s data "$root/$pattern"
done
require start_nginx "$root"
require start_wfsd

# partial PATTERN BLOCK WINDOW EXTRA [OPTIONS]: read-ahead goes at most EXTRA blocks beyond
# those read from.
partial() {
	local pattern=$1 block=$2 window=$3 extra=$4 bytes sent

	shift 4
	bytes=$(($(numfmt --from=iec "$block") * extra))
	require mount_wfs "$nginx_url/$pattern/" "$mnt" "block=$block,readahead=$window"
	reading "$pattern: cold" "$pattern" "$mnt" "$root/data" --block "$block" "$@"
	sent=$(bytes_sent "/$pattern/")
	at_most "$sent" $(($(figure touched) + bytes)) "$pattern: only what it read was fetched"
	at_most "$sent" $(($(size_of "$root/data") / 2)) "$pattern: the rest was not"
	check "$pattern: what was fetched gets stored" wfs sync "$mnt"
	drop_caches
	reading "$pattern: again" "$pattern" "$mnt" "$root/data" --block "$block" "$@"
	at_most "$(bytes_sent "/$pattern/")" "$((sent + bytes))" "$pattern: nothing was fetched twice"
	require umount "$mnt"
}

partial moe-rows 64K 32M 0 --count 60
partial wds-random 256K 32M 20 --count 20
# Each run may be followed by one window: eight runs, then four.
partial rowgroup 256K 1M 32
partial seek 1M 1M 8 --count 2
partial tail-first 1M 32M 8 --count 1
partial gguf-header 1M 32M 4 --count 1
