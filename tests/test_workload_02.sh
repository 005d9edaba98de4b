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
make_data "$root/far" one 134217739
for pattern in moe-rows wds-random rowgroup tail-first gguf-header; do
	ln -s data "$root/$pattern"
done
ln -s far "$root/seek"
require start_nginx "$root"
require start_wfsd

# partial PATTERN BLOCK EXTRA [OPTIONS]: at most EXTRA blocks come beyond those read from.
partial() {
	local pattern=$1 block=$2 extra=$3 bytes sent

	shift 3
	bytes=$(($(numfmt --from=iec "$block") * extra))
	require mount_wfs "$nginx_url/$pattern/" "$mnt" "block=$block"
	reading "$pattern: cold" "$pattern" "$mnt" "$root/$pattern" --block "$block" "$@"
	sent=$(bytes_sent "/$pattern/")
	at_most "$sent" $(($(figure touched) + bytes)) \
		"$pattern: only what it read was fetched, $(figure touched) bytes of blocks"
	at_most "$sent" $(($(size_of "$root/$pattern") / 2)) "$pattern: the rest was not"
	check "$pattern: what was fetched gets stored" wfs sync "$mnt"
	drop_caches
	reading "$pattern: again" "$pattern" "$mnt" "$root/$pattern" --block "$block" "$@"
	at_most "$(bytes_sent "/$pattern/")" "$((sent + bytes))" "$pattern: nothing was fetched twice"
	require umount "$mnt"
}

partial moe-rows 64K 0 --count 60
partial wds-random 256K 4 --count 20
# Behind each of eight runs goes one block at most, of the default size in the second case.
partial rowgroup 256K 8
partial seek 4M 4
partial tail-first 1M 4 --count 1
partial gguf-header 1M 4 --count 1
