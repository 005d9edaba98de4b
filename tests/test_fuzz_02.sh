#!/bin/bash
# SPDX-License-Identifier: MIT
# full: yes
# group: fuzz
# kernels: debug
# timeout: 240
#
# The channel and the netlink family, told right, nearly right and random things while files
# are used. WFS_FUZZ_SECONDS (default 30; 600 in make check-all) and WFS_FUZZ_SEED.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"
. "$(dirname "$0")/inject.sh"

seconds=${WFS_FUZZ_SECONDS:-30}
[ -z "${WFS_TEST_LONG-}" ] || seconds=${WFS_FUZZ_SECONDS:-600}
seed=${WFS_FUZZ_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
size=300000

clear_leaks
require load_module
mkdir -p /var/cache/wfs/fuzz /var/cache/wfs/standin /srv
diag "seed $seed, $seconds s"
check "no process hangs" "$bin/fuzz_channel" -s "$seed" -t "$seconds" /mnt /srv /var/cache/wfs/fuzz
cp "$tmp/check.log" "$tmp/fuzz.log"
diag "$(tail -n 2 "$tmp/fuzz.log")"
executions=$(sed -n 's/^executions \([0-9]*\).*/\1/p' "$tmp/fuzz.log")
at_least "$executions" $((seconds * 20)) "executions"
at_least "$(grep -c '^mounted' "$tmp/fuzz.log")" 1 "the mount was there"

unmounted() {
	while umount -l /mnt || umount -l /srv; do :; done 2>/dev/null
	! grep -q ' wfs ' /proc/mounts
}
check "what is mounted is unmounted" unmounted
begin_standin -e "cache /var/cache/wfs/standin" -e "file w $size"
require mount_wfs file:///x /mnt block=128K
check "a right helper is served: the file reads right" cmp <("$bin/standin" -c w v1 $size) /mnt/w
require umount /mnt
stop_standin
check "the module unloads" unload_module
check "nothing has leaked" no_leak
