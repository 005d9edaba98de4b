#!/bin/bash
# SPDX-License-Identifier: MIT
# group: fault
# kernels: 6.1 6.12
# timeout: 300
#
# A server that answers oddly, read through a mount: right bytes or an error, in time.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

port=8098
url=http://127.0.0.1:$port
kinds="full wrong_range wrong_total no_range short long reset corrupt gzip"
require start_server "$port" python3 "$tests/faulty_origin.py" --port "$port"

# fault JSON: from now on; calm: none any more.
fault() {
	curl -sf -o "$tmp/reply" -d "$1" "$url/_/fault"
}
calm() {
	curl -sf -o "$tmp/reply" -X DELETE "$url/_/fault"
}
gets() {
	curl -sf "$url/_/count?method=GET&path=$1" | tr -dc 0-9
}
put() {
	curl -sf -o "$tmp/reply" -X PUT --data-binary "@$root/$1" \
		"$url/_/file/d/$1?etag=strong&modified=1600000000"
}

configure "[fetch]
retry_budget = 6
stall_timeout = 2"
for name in $kinds plain gone head slow listed; do
	make_data "$root" "$name" 2000003
	require put "$name"
done
require start_wfsd
require mount_wfs "$url/d/" "$mnt" block=1M,ttl=0

for kind in full wrong_range wrong_total no_range short long reset; do
	require fault "{\"path\": \"/d/$kind\", \"method\": \"GET\", \"kind\": \"$kind\", \"times\": 2,
		\"shift\": 65536, \"total\": 5000, \"after\": 70000, \"extra\": 1000}"
	reading "$kind, twice: the read is whole" eager "$mnt/$kind" "$root/$kind"
	at_most "$(gets "/d/$kind")" 12 "$kind: GETs"
	require calm
done
require fault '{"path": "/d/gzip", "kind": "gzip"}'
reading "O11: gzip: the stored bytes" eager "$mnt/gzip" "$root/gzip"
require calm

require fault '{"path": "/d/slow", "method": "GET", "kind": "stall", "after": 100000, "times": 1}'
reading "O8: stalled once: asked again" st-lazy "$mnt/slow" "$root/slow"
require calm

require fault '{"path": "/d/head", "method": "HEAD", "kind": "status", "code": 503, "times": 2}'
check "O6: 503 on HEAD is retried, never ENOENT" stat "$mnt/head"
require calm
require fault '{"path": "/d/plain", "method": "GET", "kind": "status", "code": 429, "times": 3}'
reading "O7: 429 on GET: it backs off, then reads" eager "$mnt/plain" "$root/plain"
require calm

require fault '{"path": "/d/gone", "method": "GET", "kind": "status", "code": 500}'
began=$SECONDS
check_fails "O10: 500 for ever: EIO" "Input/output error" cat "$mnt/gone"
took=$((SECONDS - began))
at_least "$took" 4 "O10: not before the retry budget of 6 s"
at_most "$took" $((30 * time_scale)) "O10: soon after it"
require calm
healed() {
	cmp -s "$mnt/gone" "$root/gone"
}
check "once it is over, the file reads" soon 30 healed

# A server that is away for a while: faults wait, nobody gets SIGBUS.
make_data "$root/n" away 12582912
require start_nginx "$root/n" "limit_rate 300k;"
nginx_conf=$nginx_dir/nginx.conf
stop_wfsd
rm "$wfsd_conf"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt.n" block=1M,readahead=1M
reading_on reader st-lazy "$mnt.n/away" "$root/n/away"
begun() {
	[ "$(in_memory "$mnt.n/away")" -gt 0 ]
}
check "a load begins" soon 30 begun
nginx -c "$nginx_conf" -s stop
check "O12: the origin is gone: the load waits" soon 20 waits "$reader"
sed -i 's/limit_rate 300k;//' "$nginx_conf"
check "the origin is back" nginx -c "$nginx_conf"
check "O12: the load completes, every byte right" wait_for "$reader" 80
check "nothing is stuck" nothing_stuck

# SIGTERM while an origin does not answer.
require fault '{"path": "/d/listed", "method": "GET", "kind": "stall", "after": 0}'
reading_on reader eager "$mnt/listed" "$root/listed"
check "a reader waits for an origin that hangs" soon 20 waits "$reader"
check "P2: the daemon ends when asked to" stop_wfsd
check "the reader waits on" kill -0 "$reader"
kill "$reader"
check "and can be killed" soon 5 gone "$reader"
wait "$reader" 2>/dev/null || true
