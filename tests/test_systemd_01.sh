#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The unit: started when it says so, started again when killed, and before what fstab
# mounts.
# systemd: yes
# timeout: 400
. "$(dirname "$0")/lib.sh"

unit() {
	systemctl show -P "$1" "${2:-wfsd.service}"
}

# limit NAME: of the running daemon.
limit() {
	awk -v name="$1" 'index($0, name) == 1 { print $(NF - 1) }' "/proc/$(unit MainPID)/limits"
}

restarted() {
	[ "$(unit ActiveState)" = active ] && [ "$(unit MainPID)" != "$killed" ]
}

for name in before after; do
	require make_file "/srv/unit/$name.bin" 3000000 "$name"
	touch -d 2020-01-01 "/srv/unit/$name.bin"
done

is "$(unit Type)" notify "the unit waits for the daemon to say that it is ready"
check "it starts" systemctl start wfsd.service
check "and takes commands at once" wfs mounts
is "$(unit SubState)" running "it runs"
is "$(limit 'Max locked memory')" unlimited "it may pin its buffers"
is "$(limit 'Max core file size')" 0 "and leaves no dumps"
check "it reads its configuration again" systemctl reload wfsd.service
check "it stops" systemctl stop wfsd.service
is "$(unit Result)" success "without a complaint"

echo "file:///srv/unit /mnt/unit wfs ro,_netdev,x-systemd.requires=wfsd.service 0 0" >>/etc/fstab
require systemctl daemon-reload
check "a mount of fstab needs the daemon" grep -qw wfsd.service <<<"$(unit Requires mnt-unit.mount)"
check "and waits for it" grep -qw wfsd.service <<<"$(unit After mnt-unit.mount)"
check "mounting it" systemctl start mnt-unit.mount
is "$(unit ActiveState)" active "starts the daemon"
is "$(findmnt -no FSTYPE /mnt/unit)" wfs "and mounts"
is "$(hash_file /mnt/unit/before.bin)" "$(hash_file /srv/unit/before.bin)" "a file has its bytes"

killed=$(unit MainPID)
kill -KILL "$killed"
check "after SIGKILL it is started again" soon 30 restarted
is "$(unit NRestarts)" 1 "once"
is "$(hash_file /mnt/unit/after.bin)" "$(hash_file /srv/unit/after.bin)" \
	"the mount goes on, with what was never read before"
check "unmounting" systemctl stop mnt-unit.mount
is "$(findmnt -no FSTYPE /mnt/unit)" "" "leaves nothing mounted"
check "the daemon stops" systemctl stop wfsd.service
is "$(unit Result)" success "without a complaint"
