#!/bin/bash
# SPDX-License-Identifier: MIT
# group: native
# where: host
# kernels: none
# timeout: 300
#
# The daemon without the kernel: sources, scheduler, cache and command on this host.
. "$(dirname "$0")/lib.sh"
origin_port=18182
. "$(dirname "$0")/origin.sh"

PATH=${WFS_HELPER:-$tests/../build/helper}:$PATH
export WFS_SOCKET=$tmp/wfsd.sock
wfsd_sock=$WFS_SOCKET
wfsd_log=$tmp/wfsd.log
nginx_port=18181
cache=$tmp/cache
capacity=1G
big=$((48 * 1024 * 1024 + 4321))

start_native() {
	rm -f "$WFS_SOCKET"
	wfsd --no-kernel --foreground --cache-dir "$cache" --cache-capacity "$capacity" \
		--control-socket "$WFS_SOCKET" --metrics-listen 127.0.0.1:19419 "$@" >>"$wfsd_log" 2>&1 &
	wfsd_pid=$!
	soon 30 answering
}

# used: bytes that the data files take.
used() {
	find "$cache/data" -type f -printf '%b\n' | awk '{ n += $1 } END { print n * 512 }'
}

field() {
	jq -r ".$1"
}

cleanup() {
	stop_wfsd
	[ ! -e "$tmp/nginx/pid" ] || stop_nginx
	[ -z "${origin_pid-}" ] || stop_origin
}
trap 'cleanup; tap_end' EXIT

fetched() {
	wfs fetch --json "$@" | tail -n 1 | field fetched
}

require make_file "$tmp/root/model/a.bin" "$big" a
require make_file "$tmp/root/model/deep/b.bin" 300000 b
require make_file "$tmp/root/model/c d%.bin" 65536 c
require touch "$tmp/root/model/empty"
# A server's time stamps prove a version only when they are old enough.
require find "$tmp/root" -exec touch -d '1 hour ago' {} +
# A directory in itself, and so on.
require start_nginx "$tmp/root" "location /loop/ {
	default_type application/json;
	return 200 '[{\"name\":\"$(printf '%0250d' 0)\",\"type\":\"directory\"}]';
}"
all=$((big + 300000 + 65536))

# ---- no daemon, wrong usage

status=0
output=$(wfs fetch "$nginx_url/model/" 2>&1) || status=$?
is "$status" 3 "without a daemon the status is 3"
is "$(grep -c 'no daemon' <<<"$output")" 1 "and a sentence says so"
status=0
wfs fetch >"$tmp/usage" 2>&1 || status=$?
is "$status" 2 "wrong usage has status 2"
status=0
wfs nonsense >"$tmp/usage" 2>&1 || status=$?
is "$status" 2 "so has a command that there is not"
for command in mounts stat ls fetch verify prefetch sync invalidate evict pin unpin profile events; do
	wfs "$command" --help >"$tmp/usage" || not_ok "wfs $command --help"
done
check "wfsd --help" wfsd --help
check_fails "an unknown option is refused" "see wfsd --help" wfsd --no-such-option
check_fails "a malformed value is refused" "buffer_memory" wfsd --fetch-buffer-memory lots

# ---- HTTP

require start_native
check "ls" wfs ls "$nginx_url/model/"
is "$(wfs ls --json "$nginx_url/model/" | jq -r .name | sort | tr '\n' ' ')" \
	"a.bin c d%.bin deep empty " "ls shows what is there"
check_fails "a source that is not there is refused" "" wfs ls "$nginx_url/none/"
heads=$(grep -c '^HEAD' "$nginx_log")
is "$(fetched "$nginx_url/model/")" "$all" "a cold fetch brings all bytes"
is "$(bytes_sent)" "$all" "and the server sent them once"
is "$(($(grep -c '^HEAD' "$nginx_log") - heads))" 4 "and was asked once for each version, and not what it is"
gets=$(count_gets)
is "$(fetched "$nginx_url/model/")" 0 "a second fetch brings nothing"
is "$(count_gets)" "$gets" "by no GET at all"
is "$(fetched "$nginx_url/model/a.bin")" 0 "a single object of it is found in the cache"
is "$(wfs stat --json | field counters.cache_used_bytes)" "$all" "the cache holds them"
check "directories that have no end are fetched as far as a path goes" wfs fetch "$nginx_url/loop/"
is "$(grep -c 'GET 200 .*/loop/' "$nginx_log")" 17 "level by level"
check "sync" wfs sync
check "the metrics are served" grep -q '^wfs_origin_bytes_total [1-9]' \
	<(curl -s http://127.0.0.1:19419/metrics)

# ---- restart

require stop_wfsd
require start_native
is "$(fetched "$nginx_url/model/")" 0 "warm after a restart"
is "$(count_gets)" "$gets" "by no GET"
is "$(wfs fetch --verify --json "$nginx_url/model/" | tail -n 1 | field checked)" "$all" \
	"all of it is read back and right"
is "$(count_gets 'bin$')" "$gets" "from the cache"

# ---- a damaged block

for file in "$cache"/data/*/*; do
	printf X | dd of="$file" bs=1 seek=12345 conv=notrunc 2>/dev/null
done
sync
require wfs fetch --verify "$nginx_url/model/"
at_least "$(wfs stat --json | field counters.blocks_corrupt)" 1 "a damaged block is noticed"
is "$(count_gets 'bin$')" $((gets + 3)) "and fetched again, one GET a block"
require wfs fetch --verify "$nginx_url/model/"
is "$(count_gets 'bin$')" $((gets + 3)) "for good"

# ---- evict

is "$(wfs evict --json "$nginx_url/model/" | field busy)" 0 "evict"
is "$(wfs stat --json | field counters.cache_used_bytes)" 0 "nothing is left"
is "$(find "$cache/data" -type f | wc -l)" 0 "and no file"

# ---- killed in the middle

: >"$nginx_log"
background fetch wfs fetch "file://$tmp/root/model"
soon 20 eval '[ "$(find "$cache/data" -type f | wc -l)" -gt 0 ]'
kill_wfsd
wait "$fetch" 2>/dev/null
require start_native
check "a fetch after the daemon was killed" wfs fetch "file://$tmp/root/model"
before=$(wfs stat --json | field counters.blocks_corrupt)
check "all of it can be read back" wfs fetch --verify "file://$tmp/root/model"
is "$(wfs stat --json | field counters.blocks_corrupt)" "$before" "and every sum is right"
is "$(wfs stat --json | field counters.cache_used_bytes)" "$all" "the account is right"

# ---- capacity

require stop_wfsd
capacity=16M
require start_native
wfs fetch "$nginx_url/model/" >"$tmp/fetch.log" 2>&1 || true
at_most "$(used)" $((17 * 1024 * 1024)) "the capacity is kept to"
wfs fetch "file://$tmp/root/model" >"$tmp/fetch.log" 2>&1 || true
at_most "$(used)" $((17 * 1024 * 1024)) "and again"

# ---- versions that the listing does not tell

heads_of_all() {
	[ "$(ask_origin "count?method=HEAD")" = "$1" ]
}

require start_origin
at_origin http
for i in 1 2 3 4 5 6; do
	require control PUT "/_/file$place/$i?size=100000&seed=$i&etag=strong"
done
require fault '*' mute '"method": "HEAD"'
background fetch wfs fetch --json "$source" >"$tmp/ahead"
check "all are asked for before the first is told" soon 20 heads_of_all 6
is "$(ask_origin "count?method=GET&path=$place/1")" 0 "and nothing of a file whose version is not known"
require calm
check "then all are fetched" wait "$fetch"
is "$(tail -n 1 "$tmp/ahead" | field fetched)" 600000 "to the last byte"
check "with one more question each" heads_of_all 12
require stop_origin
origin_pid=

# ---- what others see of it

require stop_wfsd
export AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=wfssecret-environment
require start_native --source s3://b:access_key=k --source s3://b:secret_key=wfssecret-argument
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
shown() {
	tr '\0' '\n' <"/proc/$wfsd_pid/$1"
}
is "$(shown environ | grep ^AWS_ACCESS)" AWS_ACCESS_KEY_ID=id "its environment is to be seen"
is "$(shown environ | grep -c wfssecret-environment)" 0 "but no secret in it"
is "$(shown cmdline | grep ^s3://b:secret)" "s3://b:secret_key=******************" \
	"nor in its arguments"
is "$(stat -c %a "$WFS_SOCKET")" 660 "the control socket is for its owner and group"
is "$(awk '/core file/ { print $5, $6 }' "/proc/$wfsd_pid/limits")" "0 0" "it leaves no dumps"

# ---- stopping

begun=$SECONDS
check "the daemon stops" stop_wfsd
at_most $((SECONDS - begun)) 10 "soon"
is "$(grep -c -i 'sanitizer\|runtime error' "$wfsd_log")" 0 "with nothing to complain about"
