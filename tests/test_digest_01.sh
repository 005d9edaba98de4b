#!/bin/bash
# SPDX-License-Identifier: MIT
# group: digest
# where: host
# kernels: none
# timeout: 240
#
# wfs verify and wfs fetch --verify, by a daemon without the kernel: digests beside the object,
# of S3 and on the command line; blocks that are damaged; objects that are not what they
# should be.
. "$(dirname "$0")/lib.sh"

PATH=${WFS_HELPER:-$tests/../build/helper}:$PATH
export WFS_SOCKET=$tmp/wfsd.sock
wfsd_sock=$WFS_SOCKET
wfsd_log=$tmp/wfsd.log
nginx_port=18191
origin_port=18192
. "$tests/origin.sh"
cache=$tmp/cache
root=$tmp/root
size=$((12 * 1024 * 1024 + 4321))

start_native() {
	rm -f "$WFS_SOCKET"
	wfsd --no-kernel --foreground --config "$tmp/conf" --cache-dir "$cache" --cache-capacity 1G \
		--control-socket "$WFS_SOCKET" --metrics-listen 127.0.0.1:19421 \
		--fetch-retry-budget 1 >>"$wfsd_log" 2>&1 &
	wfsd_pid=$!
	soon 30 answering
}

cleanup() {
	stop_wfsd
	[ ! -e "$tmp/nginx/pid" ] || stop_nginx
	[ -z "${origin_pid-}" ] || stop_origin
}
trap 'cleanup; tap_end' EXIT

# ask COMMAND...: runs wfs; its status, result and sentences are in $status, $result, $said.
ask() {
	status=0
	wfs "$1" --json "${@:2}" >"$tmp/out" 2>"$tmp/said" || status=$?
	result=$(tail -n 1 "$tmp/out")
	said=$(cat "$tmp/said")
}

field() {
	jq -r ".$1" <<<"$result"
}

# digests: how many were verified, wrong, composite, none, partial, unasked.
digests() {
	jq -r '.digests | "\(.verified) \(.wrong) \(.composite) \(.none) \(.partial) \(.unasked)"' <<<"$result"
}

says() {
	is "$(grep -c -- "$1" <<<"$said")" 1 "$2"
}

stat_of() {
	wfs stat --json | jq -r ".counters.$1"
}

sum() {
	sha256sum "$1" | cut -d ' ' -f 1
}

# flip FILE OFFSET: the byte becomes another one.
flip() {
	local byte

	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	printf '%b' "\\$(printf '%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
	sync "$1"
}

# data_file SIZE: the file in the cache of the object of this size.
data_file() {
	find "$cache/data" -type f -size "$((($1 + 4095) / 4096 * 4096))c"
}

# beside NAME DIGEST: the file beside it says so. Of one size and time, so that it is one version.
beside() {
	echo "$2  ${1##*/}" >"$root/model/$1.sha256"
	touch -r "$root/model/empty" "$root/model/$1.sha256"
}

require make_file "$root/model/a.bin" $size a
require make_file "$root/model/deep/b.bin" 300000 b
require make_file "$root/model/c d%.bin" 65536 c
require make_file "$root/other/d.bin" 100000 d
require touch "$root/model/empty"
(cd "$root/model" && sha256sum a.bin >a.bin.sha256 && sha256sum empty >empty.sha256)
sum "$root/model/c d%.bin" >"$root/model/c d%.bin.sha256"
require find "$root" -exec touch -d '1 hour ago' {} +
require start_nginx "$root"
cat >"$tmp/conf" <<-CONF
	[source s3://]
	endpoint = $origin_url
	access_key = key
	secret_key = secret
CONF
require start_native
a=$nginx_url/model/a.bin
right=$(sum "$root/model/a.bin")
wrong=${right//[0-7]/9}

# ---- beside the file, by HTTP

ask fetch --verify "$nginx_url/model/"
is "$status" 0 "what is fetched is verified"
is "$(digests)" "3 0 0 4 0 0" "three digests; the files that tell them, and one other file, have none"
is "$(field checked)" "$(field bytes)" "all bytes were read back"
is "$(stat_of digests_verified)" 3 "they are counted"
gets=$(count_gets 'bin$')
ask fetch --verify "$nginx_url/model/"
is "$(field fetched)" 0 "when all is cached nothing is fetched"
is "$(digests)" "3 0 0 4 0 0" "and it is verified again"
ask verify "$nginx_url/model/"
is "$status $(digests)" "0 2 0 0 4 0 0" "verify: the same, but for what has no bytes"
ask verify "$a"
is "$status $(digests)" "0 1 0 0 0 0 0" "verify of one object of it"
ask verify "$nginx_url/none/"
is "$status $(field files)" "0 0" "verify where nothing is cached"
is "$(count_gets 'bin$')" "$gets" "none of this asked for an object"
wfs verify "$nginx_url/model/" >"$tmp/out"
is "$(grep -c '^digests: 2 verified, 0 wrong, 4 without a digest$' "$tmp/out")" 1 \
	"it says so to people, too"

# ---- on the command line

ask fetch --sha256 "$right" "$a"
is "$status $(digests)" "0 1 0 0 0 0 0" "--sha256 that is right"
ask verify --digest "sha512:$(sha512sum "$root/model/a.bin" | cut -d ' ' -f 1)" "$a"
is "$status $(digests)" "0 1 0 0 0 0 0" "--digest that is right"
for command in fetch verify; do
	ask "$command" --sha256 "$right" "$nginx_url/model/"
	is "$status" 2 "$command: a digest for a directory is wrong usage"
	ask "$command" --sha256 "${right#?}" "$a"
	is "$status" 2 "$command: so is half a digest"
	ask "$command" --digest "md4:$right" "$a"
	is "$status" 2 "$command: so is an algorithm that is not known"
	ask "$command" --sha256 "$right" --digest "sha256:$right" "$a"
	is "$status" 2 "$command: and so are two"
done
ask verify --sha256 "$wrong" "$a"
is "$status $(digests)" "1 0 1 0 0 0 0" "--sha256 that is wrong"
says "a.bin.*sha256.*$right.*$wrong" "a sentence has both digests"
is "$(stat_of digests_wrong)" 1 "it is counted"
ask verify "$a"
is "$(field files)" 0 "nothing of the object is left in the cache"
is "$(data_file $size)" "" "nor on the disk"
ask fetch --verify "$a"
is "$status $(field fetched) $(digests)" "0 $size 1 0 0 0 0 0" "it is fetched again"
require wfs pin "$nginx_url/model/"
ask verify --sha256 "$wrong" "$a"
is "$status" 1 "a digest that is wrong, pinned"
require wfs sync
soon 30 eval '[ -z "$(data_file $size)" ]'
ask verify "$a"
is "$(field files)" 0 "it is dropped as well"
require wfs unpin "$nginx_url/model/"

# ---- a file that is not what is said beside it

require beside a.bin "$wrong"
ask fetch --verify "$nginx_url/model/"
is "$status $(digests)" "1 2 1 0 4 0 0" "a wrong digest beside the file"
says "a.bin.*$right.*sha256 file says $wrong" "a sentence has both"
is "$(grep -c '^{"bad"' "$tmp/out")" 1 "and so has a line of JSON"
ask verify "$nginx_url/model/"
is "$status $(digests)" "0 1 0 0 4 0 0" "the object is dropped, the others stay"
require beside a.bin "$right"

# ---- damaged blocks

require wfs fetch "$nginx_url/model/"
following() {
	[ "$(stat_of event_followers)" = 1 ]
}
wfs events --json >"$tmp/events" 2>&1 &
events_pid=$!
check "the daemon's events are followed" soon 10 following
# told EVENT TEXT N: so many of these came.
told() {
	[ "$(grep -c "\"event\":\"$1\".*$2" "$tmp/events")" = "$3" ]
}
: >"$nginx_log"
corrupt=$(stat_of blocks_corrupt)
flip "$(data_file $size)" 5000000
flip "$(data_file $size)" 9000000
ask verify "$nginx_url/model/"
is "$status $(field damaged) $(field bad)" "1 2 1" "damaged blocks are found"
says "a.bin: 2 of its cached blocks were damaged" "a sentence says whose"
is "$(digests)" "1 0 0 4 1 0" "the digest is not looked at then"
is "$(stat_of blocks_corrupt)" $((corrupt + 2)) "they are counted"
is "$(grep -c 'a.bin: block [12] in the cache failed its check' "$wfsd_log")" 2 "and logged"
check "and told" soon 10 told corrupt "\"source\":\"$nginx_url/model/\",\"path\":\"a.bin\".*block [12] in the cache" 2
ask verify "$nginx_url/model/"
is "$status $(digests)" "0 1 0 0 4 1 0" "they are not in the cache any more"
is "$(count_gets 'bin$')" 0 "nothing was fetched by that"
ask fetch --verify "$nginx_url/model/"
is "$status $(field fetched) $(digests)" "0 $((2 * 4194304)) 3 0 0 4 0 0" "but by the next fetch"
require wfs sync
flip "$(data_file $size)" 100
ask fetch --verify "$nginx_url/model/"
is "$status $(field damaged) $(digests)" "0 1 3 0 0 4 0 0" "fetch --verify finds one, and repairs it"
ask verify "$nginx_url/model/"
is "$status $(digests)" "0 2 0 0 4 0 0" "for good"
rm "$(data_file $size)"
ask verify "$nginx_url/model/"
is "$status $(field bad)" "1 1" "a data file is gone"
says "a.bin: its data file in the cache is gone" "a sentence says so"
check "an event does" soon 10 told corrupt 'a.bin.*data file is gone' 1
ask fetch --verify "$nginx_url/model/"
is "$status $(field fetched)" "0 $size" "it is fetched anew"
require wfs sync
require truncate -s 5M "$(data_file $size)"
ask verify "$nginx_url/model/"
is "$status $(field bad)" "1 1" "a data file is cut"
check "an event does" soon 10 told corrupt 'a.bin.*data file is gone, or something else' 2
ask fetch --verify "$nginx_url/model/"
is "$status $(field fetched)" "0 $size" "it is fetched anew, too"
ask verify --sha256 "$wrong" "$a"
check "a wrong digest is told" soon 10 told digest "a.bin.*sha256 digest $right" 1
kill "$events_pid"
wait "$events_pid" 2>/dev/null
ask fetch --verify "$a"

# ---- another version, and no origin

printf x >>"$root/model/deep/b.bin"
require beside deep/b.bin "$wrong"
touch -d '30 minutes ago' "$root/model/deep/b.bin"
ask verify "$nginx_url/model/"
is "$status $(digests)" "0 2 0 0 4 0 0" "a digest is not taken for that of another version"
ask fetch "$nginx_url/other/"
require stop_nginx
ask verify "$nginx_url/model/"
is "$status $(digests)" "0 2 0 0 0 0 4" "without the origin the blocks are checked, and digests that are known"
at_least "$(field checked)" $size "all of them"

# ---- digests that were given, and are known from then on

d=$nginx_url/other/d.bin
ask verify "$d"
is "$status $(digests)" "0 0 0 0 0 0 1" "an object nothing is known of"
ask verify --sha256 "$(sum "$root/other/d.bin")" "$d"
is "$status $(digests)" "0 1 0 0 0 0 0" "a digest on the command line, without the origin"
ask verify "$d"
is "$status $(digests)" "0 1 0 0 0 0 0" "is known from then on"
require stop_wfsd
require start_native
ask verify "$d"
is "$status $(digests)" "0 1 0 0 0 0 0" "also after a restart"
ask verify "$nginx_url/model/"
is "$status $(digests)" "0 2 0 0 0 0 4" "and so are those that the origin told"
ask verify --sha256 "$wrong" "$d"
is "$status $(digests)" "1 0 1 0 0 0 0" "another one is wrong all the same"

# ---- S3

require start_origin
at_origin s3
head -c 70000 "$root/model/a.bin" >"$tmp/s3.bin"
for algorithm in sha256 sha1 crc32 crc32c crc64nvme; do
	require put "$algorithm" "$tmp/s3.bin" "checksum=$algorithm&checksum_type=FULL_OBJECT"
done
require put whole "$tmp/s3.bin"
echo "$(sum "$tmp/s3.bin")  whole" >"$tmp/s3.sha256"
require put whole.sha256 "$tmp/s3.sha256"
require put parts "$tmp/s3.bin" "checksum=sha256:$right-2&checksum_type=COMPOSITE"
ask fetch --verify "$source"
is "$status $(digests)" "0 6 0 1 1 0 0" "S3: each checksum, a file beside it, one of parts"
ask verify "$source"
is "$status $(digests)" "0 6 0 1 1 0 0" "S3: verify"
wfs verify "$source" >"$tmp/out"
is "$(grep -c '1 composite (not verified: .*/parts: .*where its parts are)' "$tmp/out")" 1 \
	"S3: it says what it cannot check, and why"
for algorithm in sha256 sha1 crc32 crc32c crc64nvme; do
	require put "$algorithm" "$tmp/s3.bin" "checksum=$algorithm:$(
		case $algorithm in
		sha256) echo "$right" ;;
		sha1) echo "${right:0:40}" ;;
		crc64nvme) echo "${right:0:16}" ;;
		*) echo "${right:0:8}" ;;
		esac
	)&checksum_type=FULL_OBJECT"
	ask verify "$source/$algorithm"
	is "$status $(digests)" "0 1 0 0 0 0 0" "S3: what a $algorithm was is known"
	ask fetch --verify "$source/$algorithm"
	is "$status $(digests)" "1 0 1 0 0 0 0" "S3: a $algorithm that is wrong"
	says "^wfs: $algorithm: .*$algorithm .*S3 checksum" "S3: a sentence says so"
done

# ---- S3, uploaded in parts

for algorithm in sha256 sha1 crc32 crc32c; do
	require put parts/$algorithm "$tmp/s3.bin" \
		"checksum=$algorithm&checksum_type=COMPOSITE&parts=30000,30000,10000"
done
require put parts/uneven "$tmp/s3.bin" "checksum=sha256&parts=20000,40000,10000"
require put parts/hidden "$tmp/s3.bin" "checksum=sha256&parts=20000,15000,25000,10000"
require put parts/one "$tmp/s3.bin" "checksum=sha256&parts=70000"
ask fetch --verify "$source/parts"
is "$status $(digests)" "0 7 0 0 0 0 0" "S3 parts: each checksum, however long the parts are"
parts_asked() {
	control GET /_/log && jq '[.[] | select(.path == "'"$place/parts/$1"'" and (.query | test("partNumber")))] | length' <<<"$origin_reply"
}
is "$(parts_asked sha256) $(parts_asked uneven) $(parts_asked hidden) $(parts_asked one)" "2 5 6 0" \
	"S3 parts: as few are asked for as will do"
for algorithm in sha256 crc32c; do
	require put parts/$algorithm "$tmp/s3.bin" \
		"checksum=$algorithm:${right:0:$([ $algorithm = sha256 ] && echo 64 || echo 8)}-3&parts=30000,30000,10000"
	ask fetch --verify "$source/parts/$algorithm"
	is "$status $(digests)" "1 0 1 0 0 0 0" "S3 parts: a $algorithm that is wrong"
	says "^wfs: $algorithm: its parts have .*$algorithm .*S3 checksum" "S3 parts: a sentence says so"
done
require put parts/flipped "$tmp/s3.bin" "checksum=sha256&parts=30000,30000,10000"
require fault parts/flipped corrupt '"at": 45678'
ask fetch --verify "$source/parts/flipped"
is "$status $(digests)" "1 0 1 0 0 0 0" "S3 parts: one byte that came wrong is found"
require calm
ask fetch --verify "$source/parts/flipped"
is "$status $(digests)" "0 1 0 0 0 0 0" "S3 parts: and right when it comes again"

head -c 200000 "$root/model/a.bin" >"$tmp/big.bin"
require put big "$tmp/big.bin" "checksum=crc64nvme"
ask fetch --verify "$source/big"
is "$status $(digests)" "0 1 0 0 0 0 0" "S3: one object"
flip "$(data_file 200000)" 100
require fault big status '"method": "GET", "code": 403'
ask fetch --verify "$source/big"
is "$status" 1 "S3: what is damaged cannot be fetched again"
says "big.*refuses access" "S3: it says why"
require calm
ask fetch --verify "$source/big"
is "$status $(field fetched) $(digests)" "0 200000 1 0 0 0 0 0" "S3: when it can, it is"

# ---- a directory of this machine

ask fetch --verify "file://$root/model"
is "$status $(digests)" "1 3 1 0 4 0 0" "file: digests beside the files, one of them wrong"
says 'b.bin.*sha256 file says' "file: a sentence says which"
ask verify "file://$root/model/a.bin"
is "$status $(digests)" "0 1 0 0 0 0 0" "file: one of them"

check "the daemon stops" stop_wfsd
is "$(grep -c -i 'sanitizer\|runtime error' "$wfsd_log")" 0 "with nothing to complain about"
