#!/bin/bash
# SPDX-License-Identifier: MIT
# group: read
# kernels: 6.1 6.12 debug
#
# RWF_NOWAIT never waits for the origin and does serve what is in the page cache.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" a 6000001
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"

reading "a cold range, without waiting" random "$mnt/a" "$root/a" --ways preadv2 --count 1
is "$(figure nowait)/$(figure of)" 0/1 "nothing was there at once"
reading "all of it" eager "$mnt/a" "$root/a"
reading "ranges in the page cache, without waiting" random "$mnt/a" "$root/a" --ways preadv2
is "$(figure nowait)" "$(figure of)" "all were there at once"
