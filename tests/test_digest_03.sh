#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cache
# kernels: 6.1 6.12
#
# wfs verify of what is mounted and open: the module forgets what is dropped.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

size=12587233
cache=/var/cache/wfs

make_data "$root" a $size b 70000
right=$(sha256sum "$root/a" | cut -d ' ' -f 1)
echo "$right  a" >"$root/a.sha256"
settle "$root/a.sha256"
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"
reading "what is to be checked" eager "$mnt" "$root"
check "it gets stored" stored "$mnt/a" "$mnt/b"
exec 9<"$mnt/a"
: >"$nginx_log"

# checked PATH: blocks that are damaged, and digests that are verified, wrong, none.
checked() {
	wfs verify --json "$@" 2>>"$tmp/said" | tail -n 1 |
		jq -r '"\(.damaged) \(.digests | "\(.verified) \(.wrong) \(.none)")"'
}

is "$(checked "$mnt")" "0 1 0 2" "all of a mount"
is "$(checked "$mnt/a")" "0 1 0 0" "one file"
is "$(checked --sha256 "$right" "$mnt/a")" "0 1 0 0" "with a digest"
is "$(count_gets '/[ab]$')" 0 "no data GET"

file=$(find "$cache" -path '*/data/*' -type f -size $(((size + 4095) / 4096 * 4096))c)
printf wrong | dd of="$file" bs=1 seek=5000000 conv=notrunc 2>/dev/null
sync
check_fails "a damaged block" "a: 1 of its cached blocks" wfs verify "$mnt/a"
missing() {
	[ "$(cached "$mnt/a")" = $((size - 4194304)) ]
}
check "it is dropped, and the module knows" soon 20 missing
drop_pages
reading "it is read" eager "$mnt/a" "$root/a"
is "$(bytes_sent '/a$')" 4194304 "from the origin, once"
is "$(wfs stat --json | jq .module.corrupt)" 0 "without the module meeting it"
check "and stored again" stored "$mnt/a"

is "$(checked --sha256 "${right//[0-7]/9}" "$mnt/a")" "0 0 1 0" "a wrong digest"
is "$(grep -c "a: its bytes have the sha256 digest $right" "$tmp/said")" 1 "a sentence says so"
is "$(cached "$mnt/a")" 0 "all of the file is dropped"
is "$(cached "$mnt/b")" 70000 "the other one stays"
drop_pages
reading "it is read again" eager "$mnt/a" "$root/a"
is "$(bytes_sent '/a$')" $((size + 4194304)) "from the origin, once"
exec 9<&-
