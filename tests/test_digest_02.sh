#!/bin/bash
# SPDX-License-Identifier: MIT
# group: digest
# where: host
# kernels: none
# needs: ceph
# timeout: 120
#
# wfs fetch --verify and wfs verify of objects in Ceph, by a daemon without the kernel.
. "$(dirname "$0")/lib.sh"

PATH=${WFS_HELPER:-$tests/../build/helper}:$PATH
export WFS_SOCKET=$tmp/wfsd.sock
export WFS_S3_ENDPOINT=$WFS_S3_ENDPOINT_HOST
wfsd_sock=$WFS_SOCKET
wfsd_log=$tmp/wfsd.log
bucket=digest-$$

cleanup() {
	stop_wfsd
	for key in a a.sha256 b; do
		s3 delete "$bucket/dir/$key"
	done
	s3 rmbucket "$bucket"
}
trap 'cleanup >"$tmp/cleanup.log" 2>&1; tap_end' EXIT

ask() {
	status=0
	result=$(wfs "$1" --json "${@:2}" 2>"$tmp/said" | tail -n 1; exit "${PIPESTATUS[0]}") || status=$?
}

digests() {
	jq -r '.digests | "\(.verified) \(.wrong) \(.none)"' <<<"$result"
}

require make_file "$tmp/a" 5000000 a
sum=$(sha256sum "$tmp/a" | cut -d ' ' -f 1)
echo "$sum  a" >"$tmp/a.sha256"
echo "${sum//[0-7]/9}  a" >"$tmp/wrong"
require s3 mkbucket "$bucket"
require s3 put "$tmp/a" "$bucket/dir/a"
require s3 put "$tmp/a" "$bucket/dir/b"
require s3 put "$tmp/a.sha256" "$bucket/dir/a.sha256"
cat >"$tmp/conf" <<-CONF
	[source s3://]
	endpoint = $WFS_S3_ENDPOINT
	access_key = $WFS_S3_KEY
	secret_key = $WFS_S3_SECRET
CONF
wfsd --no-kernel --foreground --config "$tmp/conf" --cache-dir "$tmp/cache" --cache-capacity 1G \
	--control-socket "$WFS_SOCKET" --metrics-listen 127.0.0.1:19422 >>"$wfsd_log" 2>&1 &
wfsd_pid=$!
require soon 30 answering
ask fetch --verify "s3://$bucket/dir"
is "$status $(digests)" "0 1 0 2" "an object with its digest beside it, and two without"
ask verify "s3://$bucket/dir"
is "$status $(digests)" "0 1 0 2" "the same of what is cached"
require s3 put "$tmp/wrong" "$bucket/dir/a.sha256"
ask verify "s3://$bucket/dir/a"
is "$status $(digests)" "0 1 0 0" "what it was before is known, and not asked for again"
ask fetch --verify "s3://$bucket/dir/a"
is "$status $(digests)" "1 0 1 0" "a digest that is wrong"
is "$(grep -c "a: .*$sum.*sha256 file says ${sum//[0-7]/9}" "$tmp/said")" 1 "a sentence has both"
ask fetch --sha256 "$sum" "s3://$bucket/dir/b"
is "$status $(digests)" "0 1 0 0" "a digest on the command line"
ask verify "s3://$bucket/dir/b"
is "$status $(digests)" "0 1 0 0" "is known from then on"
