#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cases
# kernels: 6.12
# timeout: 400
#
# Objects that change, by HTTP and by S3: one version or an error; what proves no version
# is not kept; an origin that goes away while a mapping is read.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"
. "$tests/origin.sh"

configure "[fetch]
stall_timeout = 4"
use_origin
size=700000
require make_files "$root" $size old new
require make_files "$root" 900000 longer
require make_files "$root" 6291456 away
require start_origin
require start_wfsd

# opened VARIABLE NAME: open for reading, with its first bytes read.
opened() {
	local -n _fd=$1

	exec {_fd}<"$mnt/$2"
	part "$_fd" 0 1000 | cmp -n 1000 - "$root/old"
}
# whole DESCRIPTOR FILE: all of it through the open file.
whole() {
	part "$1" 0 "$(stat -c %s "$2")" | cmp - "$2"
}
# condition NAME: what the last GET of it said about the version.
condition() {
	ask_origin log | jq -r --arg path "$place/$1" \
		'[.[] | select(.method == "GET" and .path == $path)] | last | .headers |
		"\(."if-match" // "")\(."if-unmodified-since" // "")"'
}
uncached() {
	wfs stat --json "$mnt/$1" | jq -r .uncached
}

for way in http s3; do
	at_origin "$way"
	validators=("etag=strong" "etag=weak&modified=1500000000" "etag=none&modified=1500000000")
	[ "$way" = http ] || validators+=("version=1")
	for i in "${!validators[@]}"; do
		require put "between$i" "$root/old" "${validators[i]}"
		require put "blind$i" "$root/old" "${validators[i]}"
		require put "open$i" "$root/old" "${validators[i]}"
	done
	require put kept "$root/old" version=1
	require put loop "$root/old"
	require mount_wfs "$source" "$mnt" block=64K,ttl=1,negative_ttl=1,prefetch=off,readahead=128K
	require mount_wfs "$source" "$mnt.long" ttl=3600,negative_ttl=3600

	# ---- overwritten
	for i in "${!validators[@]}"; do
		case $i in
		3) later="version=2" ;;
		*) later=${validators[i]/1500000000/1500000001} ;;
		esac
		what=${validators[i]%%&*}
		exec {between}<"$mnt/between$i"
		exec {blind}<"$mnt/blind$i"
		check "$way: $what: a file is open and read from" opened open "open$i"
		require put "between$i" "$root/new" "$later"
		require put "blind$i" "$root/new" "$later"
		require put "open$i" "$root/longer" "$later"
		# A server that knows no conditions: what it sends says that it is another one.
		require fault "blind$i" unconditional
		check_fails "V1: $way: $what: overwritten between HEAD and GET: an error" ESTALE \
			part "$between" 0 1000
		check_fails "V1: $way: $what: also where the server ignores the condition" ESTALE \
			part "$blind" 0 1000
		is "$(part "$between" 0 $size 2>/dev/null | wc -c)$(part "$blind" 0 $size 2>/dev/null | wc -c)" 00 \
			"V1: $way: $what: and no byte of the new one"
		check "V1: $way: $what: a new open sees the new one" soon 20 same "$mnt/between$i" "$root/new"
		check "V2: $way: $what: after the ttl, without a remount: new bytes" \
			soon 20 same "$mnt/open$i" "$root/longer"
		is "$(stat -c %s "$mnt/open$i")" 900000 "V2: $way: $what: and the new size"
		is "$(stat -L -c %s "/proc/self/fd/$open")" $size "V3: $way: $what: the open file keeps its size"
		check_fails "V3: $way: $what: and its content, or gives an error" ESTALE part "$open" 600000 1000
		part "$open" 0 1000 >"$tmp/part"
		check "V3: $way: $what: what was read can be read again" cmp -n 1000 "$tmp/part" "$root/old"
		exec {open}<&- {between}<&- {blind}<&-
	done
	require calm
	if [ "$way" = s3 ]; then
		check "a file of a versioned bucket is open" opened kept kept
		require put kept "$root/longer" "version=2&keep=1"
		check "V3: s3: a versioned bucket: the open file goes on with its version" whole "$kept" "$root/old"
		check "V2: s3: a versioned bucket: a new open sees the new one" \
			soon 20 same "$mnt/kept" "$root/longer"
		exec {kept}<&-
	fi

	# ---- a listing that is known
	is "$(find "$mnt.long" -name 'added*' | wc -l)$(find "$mnt" -name 'added*' | wc -l)" 00 \
		"V4: $way: it is not there yet"
	check_fails "V4: $way: nor by name" "No such file" stat "$mnt.long/added"
	require put added "$root/old"
	listed() {
		[ -n "$(find "$mnt" -name added)" ]
	}
	check "V4: $way: an added file is listed within the ttl" soon 20 listed
	is "$(find "$mnt.long" -name added | wc -l)" 0 "V4: $way: with a long ttl it is not"
	check "V4: $way: wfs invalidate" wfs invalidate "$mnt.long"
	is "$(find "$mnt.long" -name added | wc -l)" 1 "V4: $way: then it is listed at once"
	check "V4: $way: and found" cmp "$mnt.long/added" "$root/old"

	# ---- overwritten all the time
	(
		n=0
		until [ -e "$tmp/stop" ]; do
			n=$((n + 1))
			put loop "$root/$([ $((n % 2)) = 0 ] && echo old || echo new)"
		done 2>/dev/null
	) &
	writer=$!
	cat >"$tmp/reread" <<-'PY'
	import os, sys
	path, log, *wanted = sys.argv[1:]
	wanted = [open(name, "rb").read() for name in wanted]
	with open(log, "a", 1) as out:
	    while True:
	        try:
	            with open(path, "rb") as file:
	                result = "read" if file.read() in wanted else "mixed"
	        except OSError as error:
	            result = os.strerror(error.errno)
	        print(result, file=out)
	PY
	background first python3 "$tmp/reread" "$mnt/loop" "$tmp/reads.$way" "$root/old" "$root/new"
	background second python3 "$tmp/reread" "$mnt/loop" "$tmp/reads.$way" "$root/old" "$root/new"
	many_reads() {
		[ "$(wc -l <"$tmp/reads.$way" 2>/dev/null || echo 0)" -ge 30 ]
	}
	check "V5: $way: overwritten while it is read: reads go on" soon 60 many_reads
	kill -KILL "$first" "$second"
	check "V5: $way: who reads can be killed at once" soon 5 gone "$first"
	check "V5: $way: the other one, too" soon 5 gone "$second"
	wait "$first" "$second" 2>/dev/null
	touch "$tmp/stop"
	wait "$writer"
	rm -f "$tmp/stop"
	is "$(sort -u "$tmp/reads.$way" | grep -vxE 'read|(Stale file handle|Input/output error)')" "" \
		"V5: $way: no mixture: one version, or an error that says so"

	# ---- weak validators
	require put weak "$root/old" "etag=weak&modified=1500000000"
	require put none "$root/old" "etag=none&modified=none"
	check "$way: a weak ETag is read" cmp "$mnt/weak" "$root/old"
	is "$(condition weak)" "Fri, 14 Jul 2017 02:40:00 GMT" "$way: If-Unmodified-Since goes with it"
	check "$way: settled, it is kept" stored "$mnt/weak"
	now=$(date +%s)
	require put young "$root/old" "etag=none&modified=$((now - 5))"
	check "$way: a young Last-Modified is read" cmp "$mnt.long/young" "$root/old"
	wfs sync "$mnt.long"
	is "$(cached "$mnt.long/young") $(mnt=$mnt.long uncached young)" "0 true" "$way: it is not kept, and said so"
	check "$way: also to people" grep -q "never kept" <(wfs stat "$mnt.long/young")
	# Two writes within a second: nobody can tell. A minute later it is sure which one it is.
	require put young "$root/new" "etag=none&modified=$((now - 5))"
	require control POST /_/clock '{"ahead": 120}'
	require wfs invalidate "$mnt.long"
	check "$way: a minute later it is read anew" cmp "$mnt.long/young" "$root/new"
	check "$way: and kept" stored "$mnt.long/young"
	require control POST /_/clock '{"ahead": 0}'

	# ---- no validator at all
	exec {none}<"$mnt.long/none"
	check "$way: no validator: it is read" whole "$none" "$root/old"
	is "$(cached "$mnt.long/none")" 0 "$way: no validator: never kept"
	before=$(gets none)
	check "$way: no validator: the open file has its pages" whole "$none" "$root/old"
	is "$(gets none)" "$before" "$way: no validator: without asking"
	require put none "$root/new" "etag=none&modified=none"
	check "$way: no validator: the next open reads anew, whatever the ttl" cmp "$mnt.long/none" "$root/new"
	at_least "$(sent none)" $((size * 2)) "$way: no validator: bytes sent"
	check "$way: no validator: so does each" cmp "$mnt.long/none" "$root/new"
	at_least "$(sent none)" $((size * 3)) "$way: no validator: bytes sent"
	check "$way: no validator: who has it open keeps what they read" whole "$none" "$root/old"
	check "$way: no validator: it can be copied" cp "$mnt.long/none" "$tmp/copy"
	exec {none}<&-
	check "$way: no validator: wfs stat says so" \
		grep -q "names no version, each open reads anew" <(wfs stat "$mnt.long/none")
	is "$(grep -c "/none: the origin names no version" "$wfsd_log")" "$([ "$way" = http ] && echo 1 || echo 2)" \
		"$way: no validator: so does the log, once a mount"

	# ---- an origin that goes away during page faults
	require put away "$root/away"
	require umount "$mnt"
	require mount_wfs "$source" "$mnt" block=256K,readahead=256K,prefetch=off
	# In the middle of the file there is no end to it: then nobody is there at all.
	require fault away stall '"method": "GET", "from": 2097152, "after": 0'
	reading_on reader scan "$mnt/away" "$root/away"
	begun() {
		[ "$(in_memory "$mnt/away")" -ge 1048576 ]
	}
	check "O12: $way: a mapping is being read" soon 60 begun
	before=$(counter retries)
	stop_origin
	refused() {
		[ $(($(counter retries) - before)) -ge 8 ]
	}
	check "O12: $way: its origin is gone: attempt after attempt is refused" soon 60 refused
	check "O12: $way: the faults wait" waits "$reader"
	require start_origin
	require put away "$root/away"
	check "O12: $way: it is back: they succeed, no SIGBUS, every byte right" wait_for "$reader" 80
	require umount "$mnt"
	require umount "$mnt.long"
done
check "nothing is stuck" nothing_stuck
