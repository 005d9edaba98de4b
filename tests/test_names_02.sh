#!/bin/bash
# SPDX-License-Identifier: MIT
# group: names
# kernels: 6.1 6.12
# timeout: 240
#
# Freshness: new, changed and removed files are seen after the ttl, or when told.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" a 50000 dir/b 50001
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" ttl=2,negative_ttl=1
require mount_wfs "$nginx_url/" "$mnt.long" ttl=never,negative_ttl=3600
require mount_wfs "$nginx_url/" "$mnt.zero" ttl=0,negative_ttl=0

overwrite() {
	make_file "$root/new" "$2" "new $1 $2"
	touch -d "$3" "$root/new"
	mv "$root/new" "$root/$1"
}
same() {
	cmp -s "$1" "$2"
}

for dir in "$mnt" "$mnt.long" "$mnt.zero"; do
	check "seen at first" same "$dir/a" "$root/a"
	check_fails "not there yet" "No such file" stat "$dir/late"
	ls "$dir" >/dev/null
done
exec {old}<"$mnt/a"
cp "$root/a" "$tmp/old-a"
overwrite a 60000 2021-01-01
make_data "$root" late 1000
check "ttl=0: the new one at once" same "$mnt.zero/a" "$root/a"
is "$(stat -c %s "$mnt.zero/a")" 60000 "ttl=0: its size"
check "ttl=0: a new file at once" same "$mnt.zero/late" "$root/late"
check "V2: ttl=2: the new one within the ttl" soon 10 same "$mnt/a" "$root/a"
is "$(stat -c %s "$mnt/a")" 60000 "V2: its size"
check "V4: a new file within the ttl" soon 10 same "$mnt/late" "$root/late"
check "V4: listed, too" soon 10 sh -c "ls '$mnt' | grep -qx late"
check "ttl=never: the old one" same "$mnt.long/a" "$tmp/old-a"
check_fails "ttl=never: still not there" "No such file" stat "$mnt.long/late"
is "$(stat -L -c %s "/proc/self/fd/$old")" 50000 "V3: an open file keeps its size"
part "$old" 0 50000 >"$tmp/read-on"
check "V3: and its bytes" cmp "$tmp/read-on" "$tmp/old-a"

check "wfs invalidate PATH" wfs invalidate "$mnt.long"
check "V4: a new file at once" same "$mnt.long/late" "$root/late"
check "the new version at once" same "$mnt.long/a" "$root/a"
check "V4: listed at once" sh -c "ls '$mnt.long' | grep -qx late"

overwrite a 60000 2022-01-01
check "same size, other bytes: seen" soon 10 same "$mnt/a" "$root/a"
rm "$root/late"
missing() {
	! stat "$1" >/dev/null 2>&1
}
check "a removed file is gone within the ttl" soon 10 missing "$mnt/late"
check "ttl=0: at once" missing "$mnt.zero/late"
