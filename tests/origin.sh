# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For tests against the misbehaving origin (faulty_origin.py), by both of its dialects.
# Sourced after lib.sh and data.sh.

origin_port=${origin_port:-8098}
origin_url=http://127.0.0.1:$origin_port
origin_bucket=bucket

# start_origin: with nothing in it; the bucket's requests must be signed.
start_origin() {
	start_server "$origin_port" python3 "$tests/faulty_origin.py" --port "$origin_port" \
		--s3-bucket $origin_bucket --s3-key key --s3-secret secret
	origin_pid=$server_pid
}

# stop_origin: connections to it are refused from now on, and it forgets all.
stop_origin() {
	kill -KILL "$origin_pid"
	wait "$origin_pid" 2>/dev/null
	true
}

# use_origin: what wfsd.conf must say for it.
use_origin() {
	configure "[source s3://]
endpoint = $origin_url
access_key = key
secret_key = secret"
}

# at_origin http|s3: where its files are there ($place), and the source ($source).
at_origin() {
	way=$1
	case $way in
	http) place=/d source=$origin_url/d/ ;;
	s3) place=/$origin_bucket source=s3://$origin_bucket ;;
	esac
}

# control METHOD TARGET [BODY]: its answer is in $origin_reply. Without a process.
origin_reply=
control() {
	local fd status line

	exec {fd}<>"/dev/tcp/127.0.0.1/$origin_port" || return
	printf '%s %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' "$1" "$2" "${#3}" "${3-}" >&"$fd"
	read -r _ status _ <&"$fd"
	while read -r line <&"$fd" && [ "$line" != $'\r' ]; do
		:
	done
	IFS= read -r -d '' origin_reply <&"$fd"
	exec {fd}>&-
	[[ $status == 20* ]]
}

# put NAME FILE [QUERY]: under $place; old enough for its version to be sure.
put() {
	control PUT "/_/file$place/$1?from=$2&${3:-etag=strong}"
}

# fault NAME KIND [MORE]: from now on; MORE are members of JSON: '"times": 2, "after": 1'.
fault() {
	control POST /_/fault "{\"path\": \"$place/$1\", \"kind\": \"$2\"${3:+, $3}}"
}

# fault_list KIND [MORE]: of listings.
fault_list() {
	control POST /_/fault "{\"path\": \"$place/\", \"kind\": \"$1\"${2:+, $2}}"
}

# calm: no faults any more; stalled answers end.
calm() {
	control DELETE /_/fault
}

# gets NAME, heads NAME, lists: how many were asked for. sent NAME: bytes of bodies.
ask_origin() {
	control GET "/_/$1" && printf '%s\n' "$origin_reply"
}
gets() {
	ask_origin "count?method=GET&path=$place/$1"
}
heads() {
	ask_origin "count?method=HEAD&path=$place/$1"
}
lists() {
	ask_origin "count?method=GET&path=$place/"
}
sent() {
	ask_origin "sent?path=$place/$1"
}

# at_least_gets NAME N, at_least_heads, at_least_lists: for soon.
at_least_gets() {
	[ "$(gets "$1")" -ge "$2" ]
}
at_least_heads() {
	[ "$(heads "$1")" -ge "$2" ]
}
at_least_lists() {
	[ "$(lists)" -ge "$1" ]
}

forget_origin_log() {
	control DELETE /_/log
}

same() {
	cmp -s "$1" "$2"
}

# make_files DIR BYTES NAME...: like make_data, all of one size.
make_files() {
	local dir=$1 bytes=$2 name args=()

	shift 2
	for name; do
		args+=("$name" "$bytes")
	done
	make_data "$dir" "${args[@]}"
}
