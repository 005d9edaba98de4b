#!/bin/bash
# SPDX-License-Identifier: MIT
# group: uapi
# where: vm
# kernels: 6.1 6.12
# timeout: 300
#
# Malformed replies about names: each is refused, does no harm, and the right reply that
# follows it is taken.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/standin.sh"

EINVAL=-22
ENOENT=-2
ESTALE=-116

script=$tmp/script
{
	echo "dir d"
	echo "file d/one 100"
	echo "file d/two 200"
	echo "link l d/one"
} >"$script"

# Lookups, each of a file of its own.
n=0
wrong_lookups() {
	while read -r wanted action; do
		[ -n "$wanted" ] || continue
		n=$((n + 1))
		few && continue
		tell "file f$n 1000" >/dev/null
		tell "fault lookup $action path f$n" >/dev/null
		check "after lookup, $action: the file is found" test -f "/mnt/f$n"
		is "$(fault_result lookup "${action%% *}")" "$wanted" "lookup, $action: is refused"
		forget_log
	done
}

for how in "" -i; do
	diag "by ${how:-ring}"
	forget_log
	begin_standin $how -s "$script"
	for action in "mode 0" "mode 0x8000" "mode 0x41ed" "mode 0x1000" "size 1" "flags 1" \
		"flags 2" "nsec 1000000000" "versionlen 1" "versionlen 300" "versionpad" \
		"mountflags 1" "grow 8" "cut 8" "oversize" "outside" "unaligned" "fd" "positive"; do
		few && continue
		tell "fault mount $action" >/dev/null
		tell "fault mount status -2" >/dev/null
		check_fails "mount, $action: the refusal that follows counts" "" mount_wfs file:///x /mnt
		is "$(fault_result mount "${action%% *}")" $EINVAL "mount, $action: is refused"
		forget_log
	done
	require mount_wfs file:///x /mnt ttl=0,negative_ttl=0
	wrong_lookups <<-CASES
	$EINVAL mode 0
	$EINVAL mode 0x81a4
	$EINVAL mode 0x1000
	$EINVAL mode 0xf000
	$EINVAL flags 2
	$EINVAL flags 0x80000000
	$EINVAL size 0xffffffffffffffff
	$EINVAL nsec 1000000000
	$EINVAL versionlen 0
	$EINVAL versionlen 1
	$EINVAL versionlen 3
	$EINVAL versionlen 256
	$EINVAL versionlen 0xffffffff
	$EINVAL versionpad
	$EINVAL versionnul
	$EINVAL grow 8
	$EINVAL cut 8
	$EINVAL cut 288
	$EINVAL oversize
	$EINVAL outside
	$EINVAL unaligned
	$EINVAL fd
	$EINVAL positive
	$ENOENT wrongid
	$ESTALE stale
	CASES

	tell "fault lookup status -4095 path odd" >/dev/null
	check_fails "an odd status is taken for EIO" "Input/output error" stat /mnt/odd
	tell "fault lookup status -2147483648 path odd" >/dev/null
	check_fails "the oddest too" "Input/output error" stat /mnt/odd
	tell "fault lookup status -516 path odd" >/dev/null
	check_fails "one that would restart the call as well" "Input/output error" stat /mnt/odd
	tell "file odd 10" >/dev/null
	tell "fault lookup twice path odd" >/dev/null
	check "a reply given three times" stat /mnt/odd
	is "$(fault_result lookup twice)" $ENOENT "  is taken once"
	tell "fault getattr mode 0x1000 path d/one" >/dev/null
	check "a name is found" stat /mnt/d/one
	check "  and revalidated in spite of a malformed reply" stat /mnt/d/one
	is "$(fault_result getattr mode)" $EINVAL "  which is refused"

	while IFS='|' read -r action; do
		[ -n "$action" ] || continue
		few && continue
		forget_log
		tell "fault readdir $action path d" >/dev/null
		is "$(cd /mnt/d && echo *)" "one two" "readdir, $action: the directory is listed"
		is "$(fault_result readdir "${action%% *}")" $EINVAL "  after that was refused"
	done <<-'CASES'
	name ..
	name .
	name a\sb
	name a\0b
	name
	name \s
	reclen 0
	reclen 4
	reclen 8
	reclen 12
	reclen 65528
	namelen 0
	namelen 4
	namelen 255
	type 0
	type 1
	type 255
	dpad
	count 0
	count 1
	count 3
	count 0xffffffff
	rflags 2
	rflags 0xffffffff
	empty
	grow 8
	cut 8
	cut 1000
	oversize
	outside
	unaligned
	fd
	positive
	CASES

	for action in empty targetnul oversize outside fd "grow 4096" positive; do
		forget_log
		tell "remove l" >/dev/null
		tell "link l d/one" >/dev/null
		echo 2 >/proc/sys/vm/drop_caches
		tell "fault readlink $action" >/dev/null
		is "$(readlink /mnt/l)" "d/one" "readlink, $action: the link is read"
		is "$(fault_result readlink "${action%% *}")" $EINVAL "  after that was refused"
	done
	for action in "grow 8" fd positive; do
		forget_log
		tell "fault unmount $action" >/dev/null
		umount /mnt
		is "$(fault_result unmount "${action%% *}")" $EINVAL "unmount, $action: is refused"
		require mount_wfs file:///x /mnt
	done
	require umount /mnt
	stop_standin
done
check "the module unloads" unload_module
