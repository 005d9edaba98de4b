#!/bin/bash
# SPDX-License-Identifier: MIT
# group: s3
# kernels: 6.12
# needs: ceph
# timeout: 300
#
# Objects that are overwritten: a reader sees one version or an error, never a mixture.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

[ -n "${WFS_S3_ENDPOINT-}" ] || skip_all "no S3 server (tests/ceph up)"
plain=change-$WFS_RUN_ID
kept=versions-$WFS_RUN_ID
configure "[source s3://]
endpoint = $WFS_S3_ENDPOINT
access_key = $WFS_S3_KEY
secret_key = $WFS_S3_SECRET"
make_data "$root" old 12000000 new 11000000
require s3 mkbucket "$plain"
require s3 mkbucket "$kept"
require s3 versioning "$kept"
require s3 put "$root/old" "$plain/a"
require s3 put "$root/old" "$kept/a"
require start_wfsd
require mount_wfs "s3://$plain" "$mnt" ttl=2,prefetch=off,readahead=128K,block=1M
require mount_wfs "s3://$kept" "$mnt.kept" ttl=2,prefetch=off,readahead=128K,block=1M

same() {
	cmp -s "$1" "$2"
}
exec {plain_fd}<"$mnt/a"
exec {kept_fd}<"$mnt.kept/a"
part "$plain_fd" 0 1000000 >"$tmp/part"
check "the first block of the old one" cmp -n 1000000 "$tmp/part" "$root/old"
part "$kept_fd" 0 1000000 >"$tmp/part"
check "the first block of the old one, versioned" cmp -n 1000000 "$tmp/part" "$root/old"
require s3 put "$root/new" "$plain/a"
require s3 put "$root/new" "$kept/a"

# The rest was never fetched and no longer exists: an error, and no byte of the new one.
check_fails "V1: reading on gives ESTALE" ESTALE part "$plain_fd" 8388608 1048576
part "$plain_fd" 8388608 1048576 >"$tmp/part" 2>/dev/null
is "$(stat -c %s "$tmp/part")" 0 "V1: and no byte of the new one"
is "$(stat -L -c %s "/proc/self/fd/$plain_fd")" 12000000 "V3: the open file keeps its size"
check "V2: a new open sees the new one" soon 10 same "$mnt/a" "$root/new"
is "$(stat -c %s "$mnt/a")" 11000000 "and its size"
part "$kept_fd" 0 12000000 >"$tmp/part"
check "V3: versioned: the open file reads the old one to its end" cmp "$tmp/part" "$root/old"
check "versioned: a new open sees the new one" soon 10 same "$mnt.kept/a" "$root/new"

# Overwritten again and again while programs read: whole old, whole new or an error.
(
	for _ in 1 2 3 4; do
		s3 put "$root/old" "$plain/a" >/dev/null
		s3 put "$root/new" "$plain/a" >/dev/null
	done
) &
writer=$!
mixtures=0
reads=0
until gone "$writer"; do
	if cat "$mnt/a" >"$tmp/got" 2>/dev/null; then
		reads=$((reads + 1))
		cmp -s "$tmp/got" "$root/old" || cmp -s "$tmp/got" "$root/new" || mixtures=$((mixtures + 1))
	fi
done
is "$mixtures" 0 "V5: no mixture among reads while it is overwritten"
diag "$reads reads succeeded"
check "after it, the last one is read" soon 20 same "$mnt/a" "$root/new"
