#!/bin/bash
# SPDX-License-Identifier: MIT
# group: mirror
# where: host
# kernels: none
# timeout: 240
#
# Mirrors, by a daemon without the kernel: three nginx and one slow server that have the same
# files, one that has others. Second requests, their cap, errors, who is joined and who is not.
. "$(dirname "$0")/lib.sh"

PATH=${WFS_HELPER:-$tests/../build/helper}:$PATH
export WFS_SOCKET=$tmp/wfsd.sock
wfsd_sock=$WFS_SOCKET
wfsd_log=$tmp/wfsd.log
origin_port=18262
. "$tests/origin.sh"
cache=$tmp/cache
files=120
size=100000
# Old enough for a time stamp to prove a version; the ETag is nginx's, which has it in it.
modified=1600000000
etag=$(printf '"%x-%x"' $modified $size)
declare -A nginx_at

start_native() {
	rm -rf "$WFS_SOCKET" "$cache"
	wfsd --no-kernel --foreground --config "$tmp/conf" --cache-dir "$cache" --cache-capacity 1G \
		--control-socket "$WFS_SOCKET" --metrics-listen 127.0.0.1:19431 \
		--fetch-retry-budget 2 >>"$wfsd_log" 2>&1 &
	wfsd_pid=$!
	soon 30 answering
}

# serve NAME PORT: serves $tmp/NAME; its address is in ${url[NAME]}.
declare -A url
serve() {
	local nginx_port=$2 root=$tmp/$1 nginx_dir nginx_log nginx_url
	local tmp=$tmp/nginx.$1

	mkdir -p "$tmp"
	start_nginx "$root" || return
	nginx_at[$1]=$nginx_dir
	url[$1]=$nginx_url/d/
}

stop() {
	local nginx_dir=${nginx_at[$1]}

	unset "nginx_at[$1]"
	stop_nginx
}

cleanup() {
	local name

	stop_wfsd
	for name in "${!nginx_at[@]}"; do
		stop "$name"
	done
	[ -z "${origin_pid-}" ] || stop_origin
}
trap 'cleanup; tap_end' EXIT

# fresh [LINE...]: a daemon with nothing in its cache, and such a configuration.
fresh() {
	stop_wfsd
	: >"$wfsd_log"
	printf '%s\n' "$@" >"$tmp/conf"
	require start_native
}

fetch() {
	wfs fetch --json "$@" >"$tmp/out"
}

stat_of() {
	wfs stat --json | jq -r ".counters.$1"
}

# mirror NAME FIELD: of the mirror whose address is ${url[NAME]}.
mirror() {
	wfs stat --json | jq -r --arg url "${url[$1]}" \
		"[.origins[].mirrors[] | select(.mirror == \$url)][0].$2"
}

# comes_to NAME WHAT N DESCRIPTION: so many of the mirror's; the last may be asked for while the
# fetch ends.
comes_to() {
	come_to() {
		[ "$(mirror "$1" "$2")" = "$3" ]
	}
	soon 20 come_to "$1" "$2" "$3"
	is "$(mirror "$1" "$2")" "$3" "$4"
}

# sums DIR: of all files in it, whatever their names.
sums() {
	find "$1" -type f -exec sh -c 'for file; do head -c '"$size"' "$file" | sha256sum; done' sh {} + |
		sort | sha256sum
}

# right: what is in the cache is what was made, all of it.
right() {
	[ "$(sums "$cache/data")" = "$wanted" ]
}

# capped: a second request for at most one in twenty.
capped() {
	[ $(($(stat_of hedges_sent) * 20)) -le "$(stat_of origin_fetches)" ]
}

for i in $(seq -w 1 "$files"); do
	require make_file "$tmp/a/d/x$i" "$size" "$i"
done
find "$tmp/a" -exec touch -d "@$modified" {} +
require cp -a "$tmp/a" "$tmp/b"
require cp -a "$tmp/a" "$tmp/c"
# Other files of the same size; and one that has more of each.
require cp -a "$tmp/a" "$tmp/other"
require cp -a "$tmp/a" "$tmp/longer"
for file in "$tmp"/longer/d/*; do
	echo more >>"$file"
done
for file in "$tmp"/other/d/*; do
	printf 'wrong' | dd of="$file" conv=notrunc status=none
done
wanted=$(sums "$tmp/a")
port=18263
for name in a b c other longer; do
	require serve "$name" $port
	port=$((port + 1))
done
require start_origin
at_origin http
url[slow]=$source
for file in "$tmp"/a/d/*; do
	require put "${file##*/}" "$file" "etag=$(jq -rn --arg e "$etag" '$e | @uri')&modified=$modified"
done

# ---- one of three is slow: one of 24 answers half a second later

fresh
fault 'x*' delay '"method": "GET", "every": 24, "seconds": 0.5'
check "a slow source and two mirrors" fetch --mirror "${url[a]}" --mirror "${url[b]}" "${url[slow]}"
check "the bytes are right" right
at_least "$(stat_of hedges_sent)" 1 "late reads were asked of another one as well"
at_least "$(stat_of hedges_won)" 1 "which was quicker"
check "no more than one in twenty" capped
comes_to a joined "$files" "all objects agree"
comes_to b joined "$files" "with the other one, too"
is "$(mirror a resting)" false "and none rests"
is "$(curl -s http://127.0.0.1:19431/metrics | grep -c "^wfs_endpoint_in_flight{endpoint=\"${url[a]%/d/}\"} 0")" 1 \
	"metrics: nothing is under way at the mirror"
at_least "$(curl -s http://127.0.0.1:19431/metrics | awk '/^wfs_hedges_sent_total/ { print $2 }')" 1 \
	"metrics: second requests"
check "the command shows each" grep -q "^mirror *${url[a]}: in use, .* $files objects agree, 0 did not" \
	<(wfs stat)
calm

# ---- named in the configuration, with others that must not be read from

fresh "[source $origin_url]" "mirror = ${url[other]%/d/}" "mirror = ${url[longer]%/d/},${url[c]%/d/}"
touch -d "@$((modified + 1))" "$tmp"/other/d/*
fault 'x*' delay '"method": "GET", "every": 24, "seconds": 0.5'
check "mirrors of a prefix" fetch "${url[slow]}"
check "the bytes are right" right
comes_to other refused "$files" "another validator: not joined"
comes_to longer refused "$files" "another size: not joined"
is "$(mirror other joined)+$(mirror longer joined)" "0+0" "none of them"
comes_to c joined "$files" "the third one is"
check "the log says why" grep -q "is not read from the mirror ${url[longer]}: it has $((size + 5)) bytes there, not $size" "$wfsd_log"
check "wfs stat says why" grep -q "another version" <<<"$(mirror other why)"
is "$(cat "${nginx_at[other]}/access.log" "${nginx_at[longer]}/access.log" | grep -vc '^HEAD 200')" 0 \
	"and nothing but that was asked of them"
calm

# ---- the source refuses to be read from, and is left alone

fresh
fault 'x*' status '"method": "GET", "code": 503'
forget_origin_log
check "a source that fails, and a mirror" fetch --mirror "${url[a]}" "${url[slow]}"
check "the bytes are right" right
at_least "$(mirror a requests)" "$files" "from the mirror"
check "the source rests" grep -q "${url[slow]} rests: .* the server answered 503" "$wfsd_log"
at_most "$(ask_origin log | jq '[.[] | select(.method == "GET" and .status == 503)] | length')" 40 \
	"and was not asked again for each"
calm

# ---- a mirror that is not there; one that goes

fresh
url[dead]=http://127.0.0.1:1/
check "a mirror that is not there" fetch --mirror "${url[dead]}+${url[b]}" "${url[a]}"
check "the bytes are right" right
is "$(mirror dead resting)+$(mirror dead requests)" "true+0" "it rests, and no read was made there"
is "$(stat_of retries)+$(stat_of mirror_failovers)" "0+0" "nor was any made again"

# ---- trust

fresh
fault 'x*' status '"method": "GET", "code": 503'
touch -d "@$((modified + 5))" "$tmp"/b/d/*
check_fails "another validator: the source's error counts" "503" \
	wfs fetch --mirror "${url[b]}x001" "${url[slow]}x001"
fresh
check "a mirror that is trusted" fetch --mirror "${url[b]},${url[longer]},trust" "${url[slow]}"
check "the bytes are right" right
comes_to b joined "$files" "size was enough"
is "$(mirror longer joined)" 0 "and is needed"
calm

# ---- the source is not there at all

fresh
check_fails "nobody else tells what there is" "mirrors are not asked, without trust" \
	wfs fetch --mirror "${url[b]}" "${url[dead]}"
fresh
seen=$(wc -l <"${nginx_at[b]}/access.log")
check "a mirror does that is trusted" fetch --mirror "${url[b]}+trust" "${url[dead]}"
check "the bytes are right" right
is "$(tail -n +$((seen + 1)) "${nginx_at[b]}/access.log" | grep -c '^GET 20[06] .* /d/x')" "$files" \
	"each was read there once"
is "$(mirror dead requests)" 0 "no read was made at the source"
is "$(stat_of mirror_names)" \
	$((files + $(tail -n +$((seen + 1)) "${nginx_at[b]}/access.log" | grep -c '^HEAD 200'))) \
	"the listing, and each name that was asked for"

# ---- one object; what makes no sense

fresh
check "one object, and where it is elsewhere" fetch --mirror "${url[b]}x001" --mirror trust "${url[a]}x001"
comes_to b joined 1 "its directory's mirror has it"
check_fails "another kind" "mirror: http(s)://HOST/PATH/" wfs fetch --mirror s3://bucket "${url[a]}"
check_fails "a local directory" "not this one" wfs fetch --mirror "${url[a]}" "file://$tmp/a"
