#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cases
# full: yes
# kernels: 6.12
# timeout: 400
#
# A server that answers oddly, by HTTP and by S3: right bytes or an error, in time, and
# nothing of it kept. The names of the cases are those of Documentation/testing.rst.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"
. "$tests/origin.sh"

# settings RETRY_BUDGET STALL_TIMEOUT: the daemon is started with them.
settings() {
	retry_budget=$1 stall_timeout=$2
	stop_wfsd || return
	rm -f "$wfsd_conf"
	configure "[fetch]
retry_budget = $retry_budget
stall_timeout = $stall_timeout
connections_per_host = 16"
	use_origin
	start_wfsd
}
size=1000003
wrong=(wrong_range no_range long announce)
require make_files "$root" $size plain tail slow resume-short resume-close gzip full "${wrong[@]}" wrong_total
require make_files "$root" 300000 other
require make_files "$root" 0 empty
require start_origin
require settings 3 4

# all_of NAME...: they have the right bytes.
all_of() {
	local name

	for name; do
		cmp "$mnt/$name" "$root/$name" || return
	done
}
# readers NAME...: one process each; their status comes with each_ends.
readers() {
	local name

	reading=()
	for name; do
		cat "$mnt/$name" >/dev/null 2>"$tmp/error.$name" &
		reading+=($!)
	done
}
# each_ends SECONDS WANTED: all of them end with that status.
each_ends() {
	local pid status

	for pid in "${reading[@]}"; do
		status=0
		wait_for "$pid" "$1" || status=$?
		[ "$status" = "$2" ] || {
			echo "$pid ended with $status"
			return 1
		}
	done
}
each_says() {
	local text=$1 name

	shift
	for name; do
		grep -q "$text" "$tmp/error.$name" || {
			echo "$name: $(cat "$tmp/error.$name")"
			return 1
		}
	done
}
still_there() {
	local pid

	for pid in "${reading[@]}"; do
		kill -0 "$pid" || return
	done
}

for way in http s3; do
	at_origin "$way"
	forget_origin_log
	for name in plain tail slow resume-short resume-close gzip other empty full "${wrong[@]}" wrong_total; do
		require put "$name" "$root/$name"
	done
	require mount_wfs "$source" "$mnt" block=256K,ttl=0,negative_ttl=0,readahead=256K

	# ---- the answer is not what was asked for
	require fault full full
	dd if="$mnt/full" bs=1000 skip=1 count=1 status=none >"$tmp/part"
	check "O1: $way: 200 and the whole body for a range: the right bytes" \
		cmp -n 1000 "$tmp/part" <(tail -c +1001 "$root/full")
	check "O1: $way: the whole file, too" all_of full
	at_most "$(gets full)" 8 "O1: $way: one GET a block, and none again and again"
	require control PUT "/_/file$place/far?size=209715200&etag=strong"
	require fault far full
	check_fails "O1: $way: too far for that to be an answer: an error" "Input/output error" \
		dd if="$mnt/far" of=/dev/null bs=4096 skip=30000 count=1
	at_most "$(gets far)" 4 "O1: $way: and no endless retry"

	check "O2: $way: a size that is no multiple of the block" all_of tail
	is "$(tail -c 3 "$mnt/tail" | sha256sum)" "$(tail -c 3 "$root/tail" | sha256sum)" \
		"O2: $way: the tail reads right"

	for kind in "${wrong[@]}" wrong_total; do
		require fault "$kind" "$kind" '"method": "GET", "shift": 65536, "total": 5000000, "extra": 1000'
	done
	readers "${wrong[@]}" wrong_total
	check "O3: $way: ranges and lengths that are wrong are refused" each_ends 40 1
	check "O3: $way: as errors" each_says "Input/output error" "${wrong[@]}"
	check "O3: $way: another length is another version" each_says "Stale file handle" wrong_total
	for kind in "${wrong[@]}" wrong_total; do
		is "$(cached "$mnt/$kind")" 0 "O3: $way: $kind: never cached"
		at_least "$(gets "$kind")" 1 "O3: $way: $kind: GETs"
	done
	require calm
	check "O3: $way: fetched again, the bytes are right" soon 20 all_of "${wrong[@]}" wrong_total

	require make_files "$root" $size shrunk
	require put shrunk "$root/shrunk"
	before=$(gets shrunk)
	is "$(dd if="$mnt/shrunk" bs=$size skip=1 count=1 status=none | wc -c)" 0 \
		"O4: $way: a read at the end is the end of the file"
	is "$(dd if="$mnt/shrunk" bs=$size skip=5 count=1 2>/dev/null | wc -c)" 0 \
		"O4: $way: and one far beyond it"
	is "$(gets shrunk)" "$before" "O4: $way: which asks nothing"
	exec {shrunken}<"$mnt/shrunk"
	require put shrunk "$root/other" "etag=none&modified=none"
	check_fails "O4: $way: the file is shorter now: 416 is another version" ESTALE \
		part "$shrunken" 600000 1000
	exec {shrunken}<&-
	is "$(sha256sum <"$mnt/shrunk")" "$(sha256sum <"$root/other")" "O4: $way: a new open has its end"

	rm "$root/shrunk"
	check "O5: $way: an empty object" cat "$mnt/empty"
	is "$(wc -c <"$mnt/empty") $(stat -c %s "$mnt/empty")" "0 0" "O5: $way: has nothing in it"
	is "$(gets empty)" 0 "O5: $way: and is not asked for it"

	# ---- the server is not well
	require fault other status '"method": "HEAD", "code": 503, "times": 2'
	check "O6: $way: 503 on HEAD: asked again" stat "$mnt/other"
	at_least "$(heads other)" 3 "O6: $way: HEADs"
	before=$(lists)
	require fault_list status '"method": "GET", "code": 503, "times": 2'
	check "O6: $way: 503 on LIST: asked again" ls "$mnt"
	at_least "$(lists)" $((before + 3)) "O6: $way: LISTs"
	require fault other status '"method": "HEAD", "code": 503'
	require fault nothing status '"method": "HEAD", "code": 503'
	check_fails "O6: $way: 503 for ever is no ENOENT" "Input/output error" stat "$mnt/nothing"
	require calm

	code=429
	[ "$way" = http ] || code=503
	require fault slow status "\"method\": \"GET\", \"code\": $code, \"times\": 5,
		\"body\": \"<Error><Code>SlowDown</Code></Error>\""
	before=$(counter retries)
	check "O7: $way: $code on GET: it backs off, and the read succeeds" all_of slow
	is $(($(counter retries) - before)) 5 "O7: $way: once for each refusal"
	require calm
	require umount "$mnt"
done

require settings 60 2
for way in http s3; do
	at_origin "$way"
	require mount_wfs "$source" "$mnt" block=256K,readahead=256K

	# ---- connections that end, or do not
	stalled=()
	for i in {1..16}; do
		require put "stalled$i" "$root/other"
		cp "$root/other" "$root/stalled$i"
		stalled+=("stalled$i")
	done
	require put meanwhile "$root/other"
	cp "$root/other" "$root/meanwhile"
	require fault "stalled*" mute '"method": "GET"'
	before=$(counter stalls)
	readers "${stalled[@]}"
	check "O8: $way: sixteen connections stall" soon 20 at_least_gets stalled16 1
	check "O8: $way: other reads are served meanwhile" all_of meanwhile
	check "O8: $way: while the sixteen wait" still_there
	again() {
		[ $(($(counter stalls) - before)) -ge 16 ] && at_least_gets stalled1 2
	}
	check "O8: $way: each times out and is tried by another one" soon 30 again
	require calm
	check "O8: $way: all of them end" each_ends 40 0
	check "O8: $way: with the right bytes" all_of "${stalled[@]}"

	require umount "$mnt"
	require mount_wfs "$source" "$mnt" block=1M
	for kind in short close; do
		require fault "resume-$kind" $kind '"method": "GET", "after": 70000'
		check "O9: $way: $kind, again and again: the read is whole" all_of "resume-$kind"
		at_least "$(gets "resume-$kind")" 15 "O9: $way: $kind: GETs"
		# Each goes on from where the last one got to, rounded down to 4 KiB.
		at_most "$(sent "resume-$kind")" $((size + 4096 * $(gets "resume-$kind"))) \
			"O9: $way: $kind: what arrived is not sent again: bytes"
		require calm
	done

	require fault gzip gzip
	check "O11: $way: Content-Encoding: gzip: the stored bytes" all_of gzip
	is "$(stat -c %s "$mnt/gzip")" $size "O11: $way: size as stat says"
	require calm

	bad=$(python3 - "$mnt" "$root" <<-'PY'
	import mmap, os, sys
	for name in sorted(os.listdir(sys.argv[2])):
	    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
	    size = os.fstat(fd).st_size
	    want = open(os.path.join(sys.argv[2], name), "rb").read()
	    if size and mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)[:] != want:
	        print(name)
	    os.close(fd)
	PY
	)
	is "$bad" "" "P3: $way: MAP_SHARED, PROT_READ works on every file"
	require umount "$mnt"
done

# ---- for ever: an error after the stated bound, which is retry_budget and one more stall
require settings 3 4
for way in http s3; do
	at_origin "$way"
	for name in forever1 forever2; do
		require put "$name" "$root/other"
		cp "$root/other" "$root/$name"
	done
	require mount_wfs "$source" "$mnt"
	check "the names are known" stat "$mnt/forever1" "$mnt/forever2"
	require fault forever1 status '"method": "GET", "code": 500'
	require fault forever2 mute '"method": "GET"'
	began=$SECONDS
	readers forever1 forever2
	check "O10: $way: errors for ever, silence for ever: an error, not never" each_ends 40 1
	took=$((SECONDS - began))
	at_least $took $((retry_budget - 1)) "O10: $way: not before the bound (s)"
	at_most $took $(((retry_budget + 2 * stall_timeout + 10) * time_scale)) "O10: $way: soon after it (s)"
	check "O10: $way: EIO" each_says "Input/output error" forever1
	check "O10: $way: silence is a timeout" each_says "timed out" forever2
	at_least "$(gets forever1)" 3 "O10: $way: it did try again: GETs"
	require calm
	check "O10: $way: once it is over, they are read" soon 20 all_of forever1 forever2
	[ "$way" = s3 ] || require umount "$mnt"
done
stop_origin
began=$SECONDS
check_fails "O10: nobody listens: an error" "Input/output error" cat "$mnt/nowhere"
at_most $((SECONDS - began)) $(((retry_budget + 15) * time_scale)) "O10: soon after the bound (s)"
check "nothing is stuck" nothing_stuck
