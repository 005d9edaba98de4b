#!/bin/bash
# SPDX-License-Identifier: MIT
# group: names
# kernels: 6.1 6.12
#
# What names look like: attributes, links, extended attributes, nothing can be written.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" a 100001 snapshots/1/model.bin 5 blobs/abc 70000
ln -s ../../blobs/abc "$root/snapshots/1/weights.bin"
ln -s nowhere "$root/dangling"
ln -s / "$root/outside"
require start_wfsd
require mount_wfs "file://$root" "$mnt"

is "$(cd "$mnt" && find . | sort)" "$(cd "$root" && find . | sort)" "the tree is complete"
is "$(stat -c '%s %Y %F' "$mnt/a")" "$(stat -c '%s %Y %F' "$root/a")" "size, time and kind"
is "$(stat -c '%a %u %g %h' "$mnt/a")" "444 0 0 1" "mode, owner and links of a file"
is "$(stat -c '%a %F' "$mnt/blobs")" "555 directory" "mode of a directory"
is "$(readlink "$mnt/snapshots/1/weights.bin")" ../../blobs/abc "the target of a link"
check "a link is followed" cmp "$mnt/snapshots/1/weights.bin" "$root/blobs/abc"
is "$(realpath "$mnt/snapshots/1/weights.bin")" "$mnt/blobs/abc" "realpath through a link"
is "$(readlink "$mnt/dangling")" nowhere "a dangling link"
check_fails "ENOENT behind it" "No such file" cat "$mnt/dangling"
check_fails "ENOENT" "No such file" stat "$mnt/no"
check_fails "ENOTDIR" "Not a directory" stat "$mnt/a/b"
check_fails "EISDIR" "Is a directory" cat "$mnt/blobs"
check "a name of 255 bytes is looked up" sh -c "! stat '$mnt/$(printf 'x%.0s' {1..255})' 2>&1 | grep -v 'No such file'"
check_fails "a longer one is refused" "too long" stat "$mnt/$(printf 'x%.0s' {1..256})"

reading "names only" meta "$mnt/snapshots/1" "$root/snapshots/1"
for command in "touch $mnt/new" "touch $mnt/a" "mkdir $mnt/new" "rm -f $mnt/a" "mv $mnt/a $mnt/b" \
	"ln -s a $mnt/new" "ln $mnt/a $mnt/new" "chmod 600 $mnt/a" "chown 1 $mnt/a" "truncate -s 0 $mnt/a" \
	"setfattr -n user.x -v 1 $mnt/a" "mknod $mnt/new p"; do
	# shellcheck disable=SC2086
	check_fails "EROFS: ${command//$mnt/}" "Read-only file system" $command
done
check "flock works" flock -x "$mnt/a" true
check "a shared lock works" flock -s "$mnt/a" true

version=$(getfattr --absolute-names --only-values -n user.wfs.version "$mnt/a")
check "user.wfs.version says something" test -n "$version"
is "$(getfattr --absolute-names --only-values -n user.wfs.cached "$mnt/a")" 0 "user.wfs.cached of a cold file"
check "it is read" cmp "$mnt/a" "$root/a"
check "it is stored" stored "$mnt/a"
is "$(getfattr -d -m 'user.wfs' "$mnt/a" 2>/dev/null | grep -c '^user.wfs')" 2 "both are listed"
check_fails "another is refused" "" getfattr -n user.wfs.nothing "$mnt/a"

is "$(stat -f -c %t "$mnt")" 77667331 "statfs has wfs's number"
blksize=$(stat -c %o "$mnt/a")
check "st_blksize is a power of two" test $((blksize & (blksize - 1))) = 0
at_least "$blksize" 4096 "and not small"
at_most "$blksize" 4194304 "and not large"
at_most "$(stat -c %b "$mnt/a")" 300 "st_blocks makes sense"
check "the mount is read-only" grep -qE "^file://.* $mnt wfs ro" /proc/mounts
mount -o remount,rw "$mnt" 2>/dev/null
check "it cannot be made writable" grep -qE "^file://.* $mnt wfs ro" /proc/mounts

require mount_wfs "file://$root" "$mnt.mode" uid=7,gid=8,mode=0440,dmode=0550
is "$(stat -c '%a %u %g' "$mnt.mode/a")" "440 7 8" "mode, uid and gid are as asked"
is "$(stat -c '%a %u %g' "$mnt.mode/blobs")" "550 7 8" "those of a directory, too"
check_fails "and count" "Permission denied" setpriv --reuid 9 --regid 9 --clear-groups cat "$mnt.mode/a"
check_fails "nothing outside is reached" "No such file" stat "$mnt/../wfs/../../nothing-here"
