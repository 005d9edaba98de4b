#!/bin/bash
# SPDX-License-Identifier: MIT
# group: share
# kernels: 6.1 6.12
#
# The same source with the same options is one superblock; bind mounts and overlays work.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" a 9000001 b 3000000 sub/c 70000
mkdir -p "$tmp"/{upper,work,bound,one}
touch "$tmp/one/a"
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt.1"
require mount_wfs "$nginx_url/" "$mnt.2"
require mount_wfs "$nginx_url/" "$mnt.3" block=1M
device() {
	stat -c '%d' "$1/a"
}
inode() {
	stat -c '%d:%i' "$1/a"
}

is "$(inode "$mnt.1")" "$(inode "$mnt.2")" "two mounts of one source have the same inodes"
check "other options make another filesystem" test "$(device "$mnt.1")" != "$(device "$mnt.3")"

reading "read through the first" eager "$mnt.1/a" "$root/a"
is "$(in_memory "$mnt.2/a")" "$(in_memory "$mnt.1/a")" "its pages are those of the second"
at_least "$(in_memory "$mnt.2/a")" 9000001 "all of them"
sent=$(bytes_sent)
reading "read through the second" eager "$mnt.2/a" "$root/a"
is "$(bytes_sent)" "$sent" "the origin is not asked again"
is "$(in_memory "$mnt.3/a")" 0 "other options share no pages"
reading "read with other options" eager "$mnt.3/a" "$root/a"

require umount "$mnt.1"
reading "the second lives on without the first" eager "$mnt.2/b" "$root/b"

mkdir -p "$tmp/bound"
require mount --bind "$mnt.2/sub" "$tmp/bound"
reading "a bind mount of a directory" eager "$tmp/bound" "$root/sub"
require mount --bind "$mnt.2/a" "$tmp/one/a"
reading "a bind mount of a file" st-lazy "$tmp/one/a" "$root/a"
mkdir -p "$tmp/fs"
require mount -t tmpfs tmpfs "$tmp/fs"
mkdir -p "$tmp/fs"/{upper,work,all}
require mount -t overlay -o "lowerdir=$mnt.2,upperdir=$tmp/fs/upper,workdir=$tmp/fs/work" \
	overlay "$tmp/fs/all"
reading "the lower layer of an overlay" st-lazy "$tmp/fs/all/b" "$root/b"
reading "by read(), too" eager "$tmp/fs/all/a" "$root/a"
check "a file of it can be written to" sh -c "printf x >>'$tmp/fs/all/sub/c'"
is "$(stat -c %s "$tmp/fs/all/sub/c")" 70001 "in the upper layer"
is "$(stat -c %s "$mnt.2/sub/c")" 70000 "not in the mount"
require umount "$tmp/fs/all"
require umount "$tmp/one/a"
require umount "$tmp/bound"
require umount "$mnt.2"
require umount "$mnt.3"
check "nothing is mounted" sh -c "! grep -q ' wfs ' /proc/mounts"
check "the daemon ends" stop_wfsd
check "the module unloads" unload_module
