#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The daemon of the unit is a user with nothing but what it needs: who it is, what it may,
# what others see of it, whose its files are, and how that goes together with a daemon that
# root starts.
# kernels: 6.12
# systemd: yes
# timeout: 400
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

# Overall, times ten: what wfsd(8) says.
exposure=22
cache=/var/cache/wfs
cores=$cache/core

unit() {
	systemctl show -P "$1" wfsd.service
}
# status FIELD: of all threads of the daemon, each value once.
status() {
	sed -n "s/^$1:[[:space:]]*//p" /proc/"$pid"/task/*/status | sort -u | tr '\t' ' '
}
served_again() {
	[ "$(unit ActiveState)" = active ] && [ "$(unit MainPID)" != "$killed" ] && wfs mounts
}
unit_ended() {
	[ "$(unit ActiveState)" = inactive ]
}
# of_others: what in the cache is not the user's.
of_others() {
	find "$cache" -mindepth 1 ! -user wfs -o ! -group wfs | head
}
# as USER GROUP COMMAND...
as() {
	setpriv --reuid "$1" --regid "$2" --clear-groups "${@:3}"
}
start_unit() {
	systemctl start wfsd.service && pid=$(unit MainPID)
}
# crash COMMAND...: with no limit for dumps; it ends by SIGSEGV.
crash() {
	(
		ulimit -c unlimited
		"$@"
	) 2>/dev/null
	[ $? = 139 ]
}

make_data "$root" one 3000000 two 3000001 three 3000002 four 3000003
require start_nginx "$root"
make_data /srv/user open 70000 closed 70001
chmod 600 /srv/user/closed
# The whole chain down to it; test directories may be closed.
chmod 755 /srv/user

# ---- the unit

check "systemd-analyze security: at most $exposure / 10" \
	systemd-analyze security --threshold="$exposure" wfsd.service

# Keys in the configuration and, by the unit, in the environment.
configure "[source s3://bucket]
endpoint = http://127.0.0.1:1
access_key = key
secret_key = wfssecret-of-configuration"
require chmod 640 "$wfsd_conf"
require chgrp wfs "$wfsd_conf"
mkdir -p /run/systemd/system/wfsd.service.d
install -m 600 /dev/stdin /etc/wfs/environment <<<$'AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=wfssecret-of-environment'
printf '[Service]\nEnvironmentFile=/etc/wfs/environment\n' >/run/systemd/system/wfsd.service.d/test.conf
require systemctl daemon-reload

# A cache that an earlier daemon, of root, has left.
require systemctl stop wfsd.service
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"
reading "with a daemon of root" eager "$mnt/one" "$root/one"
check "it gets stored" stored "$mnt/one"
require umount "$mnt"
require stop_wfsd
require chown -R root:root "$cache"

check "the unit starts in a cache that was root's" start_unit
is "$(of_others)" "" "all of it is the user's now"
id=$(id -u wfs)
check "it is a user of its own" test "$id" != 0
is "$(status Uid)" "$id $id $id $id" "the daemon is that user, in all its threads"
is "$(status Groups | tr -d ' ')" "$(id -g wfs)" "and in no group but its own"
for set in CapEff CapPrm CapInh CapAmb; do
	is "$(status $set)" 0000000000000000 "it serves without capabilities: $set"
done
is "$(status CapBnd)" 0000000000200000 "and could have had CAP_SYS_ADMIN alone"
is "$(status NoNewPrivs) $(status Seccomp)" "1 2" "no new ones; system calls are filtered"
is "$(stat -c '%U %a' /dev/wfs)" "wfs 600" "the device is its own"
if [ -z "${WFS_TRANSPORT-}" ]; then
	check "it speaks with the kernel by io_uring" \
		grep -q "by io_uring" <(journalctl -q -o cat _PID="$pid")
fi

# ---- mounts

require mount_wfs "$nginx_url/" "$mnt"
: >"$nginx_log"
reading "it serves a mount" eager "$mnt/two" "$root/two"
check "which gets stored" stored "$mnt/two"
reading "and what the other one has stored" eager "$mnt/one" "$root/one"
is "$(count_gets /one)" 0 "  from the cache"
require mount_wfs file:///srv/user "$mnt.files"
check "a file that it may read" cmp "$mnt.files/open" /srv/user/open
check_fails "one that it may not read" "Permission denied" cat "$mnt.files/closed"
require umount "$mnt.files"

# ---- commands

is "$(stat -c '%U:%G %a' "$wfsd_sock")" "wfs:wfs 660" "the control socket is for its group"
check "root may command it" wfs sync
check "and who is in the group" as nobody wfs wfs sync
check_fails "but nobody else" "Permission denied" as nobody nogroup wfs sync

# ---- secrets

check "the environment is to be seen" grep -qa AWS_ACCESS_KEY_ID=id "/proc/$pid/environ"
check "but no secret in it" eval '! grep -qa wfssecret "/proc/$pid/environ" "/proc/$pid/cmdline"'
check_fails "by its own user, not at all" "denied" as wfs wfs cat "/proc/$pid/environ"

pattern=$(cat /proc/sys/kernel/core_pattern)
echo "$cores.%p" >/proc/sys/kernel/core_pattern
# shellcheck disable=SC2016
check "a process of that user leaves a dump there" crash as wfs wfs sh -c 'kill -SEGV $$'
check "  which is found" eval 'rm "$cores".*'
require prlimit --pid "$pid" --core=unlimited:unlimited
killed=$pid
kill -SEGV "$pid"
check "after SIGSEGV it is started again" soon 30 served_again
is "$(ls "$cores".* 2>/dev/null)" "" "and has left no dump, with no limit for dumps"
echo "$pattern" >/proc/sys/kernel/core_pattern
pid=$(unit MainPID)
reading "the mount goes on" eager "$mnt/three" "$root/three"
check "and stores" stored "$mnt/three"

# ---- a daemon that root starts, in this cache

require start_wfsd --takeover
check "root's daemon takes over, and the unit's has ended" soon 20 unit_ended
is "$(unit Result)" success "  without a complaint"
check "the other's control socket stays" wfs sync
reading "the mount goes on" eager "$mnt/four" "$root/four"
check "and stores" stored "$mnt/four"
is "$(of_others)" "" "what root's daemon makes is the directory's user's"
require stop_wfsd
check "the unit starts again" start_unit
drop_pages
: >"$nginx_log"
reading "all of it is in the cache" eager "$mnt" "$root"
is "$(count_gets)" 0 "  and can be used"
check "it stops" systemctl stop wfsd.service
is "$(unit Result)" success "without a complaint"

# ---- what wfsd(8) says about drop-ins

drop_in() {
	printf '[Service]\n%b\n' "$1" >/run/systemd/system/wfsd.service.d/test.conf
	systemctl daemon-reload && start_unit
}
check "a drop-in lets it read all files" \
	drop_in 'AmbientCapabilities=CAP_DAC_READ_SEARCH\nCapabilityBoundingSet=CAP_DAC_READ_SEARCH'
is "$(status CapEff) $(status Uid)" "0000000000000004 $id $id $id $id" "that is all that it may"
require mount_wfs file:///srv/user "$mnt.files"
check "what was closed is read" cmp "$mnt.files/closed" /srv/user/closed
require umount "$mnt.files"
require systemctl stop wfsd.service

check "another one lets it be root" \
	drop_in 'User=root\nGroup=root\nCapabilityBoundingSet=CAP_DAC_OVERRIDE'
is "$(status Uid)" "0 0 0 0" "it is root"
drop_pages
: >"$nginx_log"
reading "the cache is in use" eager "$mnt" "$root"
is "$(count_gets)" 0 "  as it was"
require umount "$mnt"
require systemctl stop wfsd.service

mkdir -p /srv/cache/of-root
check_fails "a cache directory that is not its own is refused with what to do" \
	"chown -R $id:$(id -g wfs) /srv/cache/of-root" as wfs wfs wfsd --foreground --no-kernel --config /dev/null \
	--cache-dir /srv/cache/of-root --control-socket "$cache/sock" --metrics-listen ''
chmod 600 "$wfsd_conf"
chgrp root "$wfsd_conf"
check_fails "and so is a configuration that it may not read" "chmod 640" \
	as wfs wfs wfsd --foreground --no-kernel
rm -r /run/systemd/system/wfsd.service.d
systemctl daemon-reload
