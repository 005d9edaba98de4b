#!/bin/bash
# SPDX-License-Identifier: MIT
# group: read
# kernels: 6.1 6.12
# timeout: 240
#
# Files larger than 4 GiB, mostly holes at the origin.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

# patch FILE OFFSET: some bytes of data there.
patch() {
	make_file "$tmp/patch" 200000 "$2"
	dd if="$tmp/patch" of="$1" bs=1M oflag=seek_bytes seek="$2" conv=notrunc status=none
}

mkdir -p "$root/big" "$tmp/huge"
truncate -s 5368713531 "$root/big/five"
for offset in 0 2147418112 2147483000 2684356600 4294900000 4294967290 5368513531; do
	patch "$root/big/five" "$offset"
done
settle "$root/big/five"
truncate -s 2T "$tmp/huge/two-tib"
for offset in 0 1099511627600 2199023055552; do
	[ "$offset" = 2199023055552 ] && offset=$((offset - 200000))
	patch "$tmp/huge/two-tib" "$offset"
done
settle "$tmp/huge/two-tib"
require start_nginx "$root"
require start_wfsd

require mount_wfs "$nginx_url/big/" "$mnt" block=64K
is "$(stat -c %s "$mnt/five")" 5368713531 "the size of 5 GiB"
reading "both ends and the middle" huge-file "$mnt" "$root/big"
for offset in 2147483000 4294900000 4294967290; do
	check "the same bytes at $offset" cmp -n 300000 -i "$((offset - 70000))" \
		"$root/big/five" "$mnt/five"
done
reading "random ranges" random "$mnt/five" "$root/big/five" --count 60 --block 1024M
at_most "$(bytes_sent)" 1000000000 "what nobody read was not fetched"
require umount "$mnt"

require mount_wfs "file://$tmp/huge" "$mnt"
reading "2 TiB: both ends and the middle" huge-file "$mnt" "$tmp/huge"
require umount "$mnt"
