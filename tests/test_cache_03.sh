#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.1 6.12
#
# A reader that waits can be killed and others get their block; unmounting with
# requests outstanding says busy or completes.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" slow 2097152 never 8388608 other 300000
require start_nginx "$root" "location = /slow { limit_rate 300k; } location = /never { limit_rate 1; }"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"

reading_on victim eager "$mnt/slow" "$root/slow"
reading_on other st-lazy "$mnt/slow" "$root/slow"
check "a reader waits for its block" soon 20 waits "$victim"
kill -KILL "$victim"
check "P5: killed, it is gone at once" soon 3 gone "$victim"
wait "$victim" 2>/dev/null
check "P5: the other one gets its block" wait_for "$other" 60
is "$(count_gets /slow)" 1 "which was asked for once"

reading_on stuck eager "$mnt/never" "$root/never"
check "a reader waits for a block that does not come" soon 20 waits "$stuck"
reading "other files are served meanwhile" eager "$mnt/other" "$root/other"
check_fails "P6: umount says busy" busy umount "$mnt"
kill -KILL "$stuck"
wait "$stuck" 2>/dev/null
check "P6: with the reader killed, umount completes with its request outstanding" \
	timeout $((20 * time_scale)) umount "$mnt"
check "nothing is stuck" nothing_stuck

require mount_wfs "$nginx_url/" "$mnt"
reading_on stuck st-lazy "$mnt/never" "$root/never"
check "a fault waits" soon 20 waits "$stuck"
check "umount -l lets go of the mount" umount -l "$mnt"
kill -KILL "$stuck"
check "the fault can be killed" soon 3 gone "$stuck"
wait "$stuck" 2>/dev/null
check "the daemon ends" stop_wfsd
check "P6: the module unloads" unload_module
