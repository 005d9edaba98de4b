#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# kernels: 6.1 6.12
#
# Who may serve and who may mount; mounts are nosuid and nodev.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"

begin_standin -e "file f 1000"
require mount_wfs file:///x /mnt
run_tap "access" "$bin/uapi_access" /mnt
options=,$(findmnt -no OPTIONS /mnt),
check "a mount is nosuid" [ "${options/,nosuid,/}" != "$options" ]
check "  and nodev" [ "${options/,nodev,/}" != "$options" ]
check "  and read-only" [ "${options/,ro,/}" != "$options" ]

# Events name files, which not everybody may list.
check_fails "events are not for everybody" "only root may follow them" \
	timeout 20 setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all wfs events

# What nothing in a mount can be: a device, or set-user-ID.
for mode in 0x2000 0x6000 0x1000 0xc000 0x8800 0x89ed; do
	tell "file m$mode 1000" >/dev/null
	tell "fault lookup mode $mode path m$mode" >/dev/null
	check "after the mode $mode: the file is found" test -f "/mnt/m$mode"
	is "$(fault_result lookup mode)" -22 "  which was refused"
	forget_log
done
require umount /mnt
stop_standin
check "the module unloads" unload_module
