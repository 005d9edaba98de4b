#!/bin/bash
# SPDX-License-Identifier: MIT
# group: order
# where: host
# kernels: none
#
# wfs profile: orders out of a file and into one, what is refused, and what lasts.
. "$(dirname "$0")/lib.sh"

PATH=${WFS_HELPER:-$tests/../build/helper}:$PATH
export WFS_SOCKET=$tmp/wfsd.sock
wfsd_sock=$WFS_SOCKET
wfsd_log=$tmp/wfsd.log
source=file://$tmp/root/models
cache=$tmp/cache

start_native() {
	rm -f "$WFS_SOCKET"
	wfsd --no-kernel --foreground --cache-dir "$cache" --cache-capacity 64M \
		--control-socket "$WFS_SOCKET" --metrics-listen 127.0.0.1:19420 >>"$wfsd_log" 2>&1 &
	wfsd_pid=$!
	soon 30 answering
}

trap 'stop_wfsd; tap_end' EXIT

# models: how many are known.
models() {
	wfs profile list --json "$@" | wc -l
}

# profile FILTER: the sample, changed.
profile() {
	jq "$1" "$tmp/sample"
}

# refused DESCRIPTION TEXT FILTER: of the changed sample; what is known stays.
refused() {
	profile "$3" >"$tmp/changed"
	check_fails "$1" "$2" wfs profile load "$tmp/changed"
}

# ask COMMAND PATH: of what is below a directory of the source, as the command does for a mount's.
ask() {
	jq -nc --arg command "profile-$1" --arg source "$source" --arg path "$2" '$ARGS.named' |
		python3 -c 'import socket, sys
with socket.socket(socket.AF_UNIX) as s:
	s.connect(sys.argv[1])
	s.sendall(sys.stdin.buffer.read())
	print(s.makefile().readline())' "$WFS_SOCKET"
}

require mkdir -p "$tmp/root/models/llama" "$tmp/root/models/other"
cat >"$tmp/sample" <<-END
	{ "format": "wfs-profile", "version": 1, "source": "$source", "path": "llama",
	  "models": [
	    { "directory": "", "block_size": 65536,
	      "files": [ { "name": "a", "size": 650000, "version": "v\u00e91" },
	                 { "name": "b", "size": 65536, "version": "" } ],
	      "streams": [ "0:0+3 1:0 0:9", "0:4" ] },
	    { "directory": "vae", "block_size": 4194304,
	      "files": [ { "name": "c", "size": 1, "version": "" } ], "streams": [ "0:0" ] } ] }
END

status=0
wfs profile list >"$tmp/out" 2>&1 || status=$?
is "$status" 3 "without a daemon the status is 3"
require start_native
is "$(models)" 0 "nothing is known at first"
check_fails "and nothing can be saved" "no order is known" wfs profile save "$source" "$tmp/none"
is "$(ls "$tmp/none" 2>/dev/null)" "" "by which no file is made"
for args in "" "save $source" "load" "drop" "list a b" "forget $source" "--wait list"; do
	status=0
	# shellcheck disable=SC2086
	wfs profile $args >"$tmp/out" 2>&1 || status=$?
	is "$status" 2 "wfs profile $args is wrong usage"
done

check "load" wfs profile load "$tmp/sample"
is "$(models)" 2 "both directories are known"
is "$(models "$source/llama")" 0 "of another source nothing is"
is "$(wfs profile list --json "$source" | jq -s -c 'map([.directory, .files, .streams, .blocks, .bytes]) | sort')" \
	'[["llama",2,2,6,387856],["llama/vae",1,1,1,1]]' "as they were saved"
check "save" wfs profile save "$source" "$tmp/saved"
is "$(jq -c '[.source, .path, (.models | map(.directory) | sort)]' "$tmp/saved")" \
	"[\"$source\",\"\",[\"llama\",\"llama/vae\"]]" "below what is named"
is "$(jq -S -c '.models[] | select(.directory == "llama") | [.files, .streams, .block_size]' "$tmp/saved")" \
	"$(jq -S -c '.models[0] | [.files, .streams, .block_size]' "$tmp/sample")" "what was loaded"
is "$(ask save llama | jq -c '.profile | [.path, (.models | map(.directory) | sort)]')" \
	'["llama",["","vae"]]' "of a directory, told from there"
is "$(ask save llam | jq -c .profile)" null "not of one whose name begins the same"
is "$(stat -c %a "$tmp/saved")" "$(printf %o $((0666 & ~$(umask))))" "with the usual mode"
is "$(wfs profile save "$source" - | jq -r .format)" wfs-profile "to standard output"
check "for another source" wfs profile load "$tmp/saved" "$source/other"
is "$(models "$source/other")" 2 "it has them, too"
check "from standard input" eval 'wfs profile load - <"$tmp/sample"'

# ---- what lasts

require stop_wfsd
require start_native
is "$(models "$source")" 2 "they outlive the daemon"
at_most "$(find "$cache/order" -type f -printf '%m\n' | sort -u)" 600 "only the daemon reads them"
for file in "$cache"/order/*; do
	printf '#' | dd of="$file" bs=1 seek=60 conv=notrunc 2>/dev/null
	break
done
is "$(models)" 3 "a damaged one is as good as not there"
require wfs profile load "$tmp/sample"
is "$(models "$source")" 2 "until it comes again"

# ---- what is refused

refused "another format" "no profile" '.format = "x"'
refused "another version" "version" '.version = 2'
refused "no models" "models" '.models = []'
refused "a block past the end" "past the end of b" '.models[0].streams[0] = "1:1"'
refused "a block twice" "twice" '.models[0].streams[1] = "0:2"'
refused "a file that is not there" "file 2 of 2" '.models[0].streams[1] = "2:0"'
refused "something else than blocks" "FILE:BLOCK" '.models[0].streams[1] = "all"'
refused "a directory above" "directory" '.models[1].directory = "../x"'
refused "a name that is none" "name" '.models[1].files[0].name = "a/b"'
refused "a block size that is none" "power of two" '.models[1].block_size = 100000'
refused "a size below zero" "size" '.models[1].files[0].size = -1'
refused "too many streams" "64 streams" '.models[0].streams = [range(65) | ""]'
refused "too many models" "1 to 256" '.models = [range(257) as $i | .models[1]]'
refused "a source that is none" "" '.source = "nonsense://x"'
refused "no source" "which it is for" 'del(.source)'
head -c 200 "$tmp/sample" >"$tmp/changed"
check_fails "half a file" "is no JSON: line" wfs profile load "$tmp/changed"
check_fails "a file that is not there" "No such file" wfs profile load "$tmp/nothing"
check_fails "a file that cannot be written" "cannot be written" \
	wfs profile save "$source" "$tmp/no/such/file"
is "$(models "$source")" 2 "nothing was lost by any of this"
is "$(wfs profile save "$source" - | jq -S -c .models)" "$(jq -S -c .models "$tmp/saved")" \
	"nor changed"

# ---- much, and bounds

jq '.models[0].files[0].size = 65536 * 200000 |
	.models[0].streams = [[range(0; 200000; 2) | "0:\(.)"] | join(" ")]' "$tmp/sample" >"$tmp/large"
check "an order of 100,000 blocks that do not touch" wfs profile load "$tmp/large"
is "$(wfs profile list --json "$source" | jq -s 'map(.blocks) | max')" 100000 "is kept whole"
jq '.models[0].files[0].size = 65536 * 300000 | .models[0].streams = ["0:0+262145"]' \
	"$tmp/sample" >"$tmp/changed"
check_fails "too many blocks are refused" "more than 262144 blocks" wfs profile load "$tmp/changed"
for i in {1..60}; do
	jq ".path = \"n$i\" | .models |= [range(5) as \$i | .[1] | .directory = \"\(\$i)\"]" "$tmp/sample" |
		wfs profile load - || not_ok "profile $i"
done
is "$(models)" 256 "the newest 256 are kept"
is "$(models "$source")" 256 "of whichever source"
# Cut into parts on its way, at one place or another within a letter.
for name in x xx; do
	jq --arg name "$name" '.models = [.models[1] | .files = [range(250) as $i |
		{ name: ($name + "\($i)" + "\u00e9" * 100), size: 1, version: "" }]]' "$tmp/sample" >"$tmp/changed"
	check "letters of two bytes" wfs profile load "$tmp/changed"
done

# ---- drop

is "$(ask drop n60 | jq .models)" 5 "drop what is below a directory"
is "$(models)" 251 "and nothing else"
is "$(wfs profile drop --json "$source" | jq .models)" 251 "drop all of a source"
is "$(models)" 0 "nothing is left"
is "$(find "$cache/order" -type f | wc -l)" 0 "on disk either"
check "metrics have it" grep -q '^wfs_order_profiles_total [1-9]' <(curl -s http://127.0.0.1:19420/metrics)
is "$(wfs stat --json | jq '.counters | [.plans, .plan_blocks, .plan_wasted_blocks] | add')" 0 \
	"and so have the counters"
