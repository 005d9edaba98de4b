#!/bin/bash
# SPDX-License-Identifier: MIT
# group: names
# kernels: 6.12
# full: yes
# timeout: 240
#
# A directory of 100,000 files: listed whole, and not asked for again within the ttl.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

mkdir -p "$root/many"
python3 - "$root/many" <<-'PY'
	import os, sys
	for i in range(100000):
	    os.close(os.open(f"{sys.argv[1]}/file-{i:06}", os.O_CREAT | os.O_WRONLY))
PY
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" ttl=600
listings() {
	grep -c '^GET.* /many/$' "$nginx_log"
}
rss() {
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$wfsd_pid/status"
}
# shellcheck disable=SC2012
entries() {
	ls -U "$mnt/many" | sort -u | wc -l
}
before=$(rss)
is "$(entries)" 100000 "N7: each name once"
is "$(listings)" 1 "one request for the listing"
# shellcheck disable=SC2012
is "$(ls -U "$mnt/many" | wc -l)" 100000 "listed again"
is "$(listings)" 1 "N7: which asks the server nothing"
at_most $(($(rss) - before)) 300000 "N7: KiB that the daemon grew by"
check "one of them is found" stat "$mnt/many/file-099999"
