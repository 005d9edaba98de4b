#!/bin/bash
# SPDX-License-Identifier: MIT
# group: s3
# kernels: 6.12
# needs: ceph
# timeout: 400
#
# A real S3 server: listings of several pages, reads of every kind, credentials.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

bucket=read-$WFS_RUN_ID
[ -n "${WFS_S3_ENDPOINT-}" ] || skip_all "no S3 server (tests/ceph up)"
make_data "$root/model" a.bin 9000001 b.bin 4194304 sub/c.bin 70000 empty 0
configure "[source s3://]
endpoint = $WFS_S3_ENDPOINT
access_key = $WFS_S3_KEY
secret_key = $WFS_S3_SECRET
[source s3://$bucket-wrong]
endpoint = $WFS_S3_ENDPOINT
access_key = $WFS_S3_KEY
secret_key = wrong-wfssecret"
require s3 mkbucket "$bucket"
for file in a.bin b.bin sub/c.bin empty; do
	require s3 put "$root/model/$file" "$bucket/model/$file"
done
require start_wfsd

require mount_wfs "s3://$bucket/model" "$mnt"
is "$(cd "$mnt" && find . | sort)" "$(cd "$root/model" && find . | sort)" "the tree is complete"
reading "cold, by mmap" st-lazy "$mnt/a.bin" "$root/model/a.bin"
reading "cold, by O_DIRECT" llama-dio "$mnt/b.bin" "$root/model/b.bin"
check "all files are right" same_files "$root/model" "$mnt"
check "they get stored" stored "$mnt/a.bin" "$mnt/b.bin"
before=$(counter origin_bytes)
drop_caches
reading "from NVMe, by every way" random "$mnt/a.bin" "$root/model/a.bin"
is "$(counter origin_bytes)" "$before" "nothing was fetched"
require umount "$mnt"

# More keys than a page of the listing has.
require python3 - "$bucket" "$tests" <<-'PY'
import concurrent.futures, os, sys
sys.path.insert(0, sys.argv[2])
import s3
def put(i):
    s3.must(s3.request("PUT", f"/{sys.argv[1]}/many/f{i:04}", body=str(i).encode()), "put")
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(put, range(1100)))
PY
require mount_wfs "s3://$bucket/many" "$mnt"
is "$(find "$mnt" -type f | wc -l)" 1100 "a listing of two pages is complete"
is "$(find "$mnt" -type f | sort -u | wc -l)" 1100 "each name once"
is "$(cat "$mnt/f1099")" 1099 "the last one reads right"
require umount "$mnt"

began=$SECONDS
check_fails "wrong secret: the mount is refused" "" mount_wfs "s3://$bucket-wrong" "$mnt"
check_fails "wrong secret: it says why" "secret key is wrong" mount_wfs "s3://$bucket-wrong" "$mnt"
at_most $((SECONDS - began)) $((10 * time_scale)) "wrong secret: at once"
check_fails "no such bucket" "" mount_wfs "s3://no-such-$bucket" "$mnt"

require s3 public "$bucket"
require mount_wfs "s3://$bucket/model" "$mnt" "anon,endpoint=$WFS_S3_ENDPOINT"
reading "without credentials, where anybody may read" eager "$mnt/b.bin" "$root/model/b.bin"
require umount "$mnt"
