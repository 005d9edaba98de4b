#!/bin/bash
# SPDX-License-Identifier: MIT
# group: workload
# kernels: 6.1 6.12
#
# Many readers of one cold block cause one request; a cached byte causes none.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" a 20971520 b 4194304 c 5000000
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"

reading "C1: 64 readers of one cold block" many "$mnt/b" "$root/b" --count 64
is "$(count_gets /b)" 1 "C1: one GET"
is "$(bytes_sent /b)" 4194304 "C1: of its bytes"

reading "64 readers of a block in the middle" many "$mnt/a" "$root/a" --count 64 --offset 8388608
is "$(awk '$1 == "GET" && /"bytes=8388608-/ && $NF == "/a"' "$nginx_log" | wc -l)" 1 "one GET for it"

reading "P4: one descriptor, many processes" shared-fd "$mnt/c" "$root/c"
share "$(bytes_sent /c)" 5000000 "P4: one descriptor, many processes"

check "the small file gets stored" stored "$mnt/c"
: >"$nginx_log"
for _ in {1..10}; do
	echo 1 >/proc/sys/vm/drop_caches
	cmp -n 1 -i 3000000 "$mnt/c" "$root/c" || not_ok "a wrong byte"
done
is "$(count_gets)" 0 "C3: a cached byte read ten times asks nothing of the origin"
