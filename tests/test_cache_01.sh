#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.1 6.12
#
# What is on NVMe survives the daemon, and a new mount; dropped pages come from there.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" a 9000001 b 4194304 c 1
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"
reading "cold" eager "$mnt" "$root"
check "it gets stored" stored "$mnt"/[abc]
is "$(cached "$mnt/a")" 9000001 "user.wfs.cached says so"

: >"$nginx_log"
reading "C8: pages dropped by advice" drop "$mnt" "$root"
at_most "$(figure left)" 200000 "C8: bytes in the page cache after it"
is "$(count_gets)" 0 "C8: they come from NVMe"

check "the daemon ends" stop_wfsd
require start_wfsd
drop_caches
reading "C2: warm after a restart, still mounted" eager "$mnt" "$root"
is "$(count_gets)" 0 "C2: no data GET"
is "$(cached "$mnt/a")" 9000001 "user.wfs.cached is as it was"

require umount "$mnt"
check "the daemon ends" stop_wfsd
check "the module unloads" unload_module
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"
reading "C2: warm after daemon, mount and module were new" st-lazy "$mnt" "$root"
is "$(count_gets)" 0 "no data GET"
is "$(cached "$mnt/a")" 9000001 "user.wfs.cached is as it was"

kill_wfsd
require start_wfsd
drop_caches
reading "C7: warm after kill -9" eager "$mnt" "$root"
is "$(count_gets)" 0 "C7: no data GET"
