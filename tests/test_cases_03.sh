#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cases
# full: yes
# kernels: 6.12
# timeout: 400
#
# Names, by HTTP and by S3: keys that are no paths, odd characters, markers, a name that is
# both, directories that no key stands for, 100,000 names (by S3; by HTTP in names_04).
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"
. "$tests/origin.sh"

use_origin
require start_origin
require start_wfsd
printf hello >"$tmp/hello"

# put_names NAME...: each holds its own name.
put_names() {
	python3 - "$origin_port" "$place" "$@" <<-'PY'
	import http.client, sys, urllib.parse
	port, place, *names = sys.argv[1:]
	server = http.client.HTTPConnection("127.0.0.1", int(port))
	for name in names:
	    body = name.encode(errors="surrogateescape")
	    server.request("PUT", f"/_/file{place}/" + urllib.parse.quote(body, safe=""), body=body)
	    reply = server.getresponse()
	    reply.read()
	    if reply.status != 204:
	        sys.exit(name)
	PY
}
# top: what is listed there, sorted, one a line.
top() {
	find "$mnt" -mindepth 1 -maxdepth 1 -printf '%P\0' | LC_ALL=C sort -z | tr '\n\0' '\001\n'
}
lines() {
	printf '%s\0' "$@" | LC_ALL=C sort -z | tr '\n\0' '\001\n'
}
rss() {
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$wfsd_pid/status"
}

odd=('hash#tag' 'what?' '100%' 'a+b' 'a b' 'a&b' 'pc%25' 'ümläut' '日本' "quo'te" 'dou"ble' '<less>' 'semi;colon'
	'line
feed' 'a=b' '~tilde' 'back\slash' $'latin\xe9')
for way in http s3; do
	at_origin "$way"

	require put_names plain 'a//b' 'a/./c' 'a/../d' '/lead' '../up' './here' 'a/e' 'x//' "long$(printf 'n%.0s' {1..300})"
	require mount_wfs "$source" "$mnt" ttl=1
	before=$(counter hidden_keys)
	is "$(top)" "$(lines a plain x)" "N1: $way: keys that are no paths are left out, others are listed"
	is "$(ls -A "$mnt/a")" e "N1: $way: also further down"
	is "$(cat "$mnt/plain" "$mnt/a/e")" "plaina/e" "N1: $way: and read"
	is "$(ls -A "$mnt/x")" "" "N1: $way: what has nothing but such keys is empty"
	at_least $(($(counter hidden_keys) - before)) 5 "N1: $way: they are counted"
	check_fails "N1: $way: nothing leads outside" "No such file" cat "$mnt/a/../up"
	check "N1: $way: the daemon lives" kill -0 "$wfsd_pid"
	require umount "$mnt"
	require stop_origin
	require start_origin

	require put_names "${odd[@]}" sessions.json a/b/c
	require mount_wfs "$source" "$mnt"
	is "$(cat "$mnt/a/b/c")" a/b/c "N6: $way: no markers: the first open after the mount works"
	is "$(top)" "$(lines "${odd[@]}" sessions.json a)" "N2: $way: odd names are listed, each once"
	bad=
	for name in "${odd[@]}"; do
		[ "$(stat -c %s "$mnt/$name" 2>&1)" = "$(printf %s "$name" | wc -c)" ] || bad+=" stat $(printf %q "$name")"
		[ "$(cat "$mnt/$name" 2>&1)" = "$name" ] || bad+=" read $(printf %q "$name")"
	done
	is "$bad" "" "N2: $way: by stat and open each is itself"
	require umount "$mnt"
	require mount_wfs "$source" "$mnt"
	for name in "${odd[@]}"; do
		[ "$(cat "$mnt/$name" 2>&1)" = "$name" ] || bad+=" $(printf %q "$name")"
	done
	is "$bad" "" "N2: $way: also opened before any listing"
	check "N3: $way: sessions.json is there" test -f "$mnt/sessions.json"
	check_fails "N3: $way: sessions.jso is not" "No such file" stat "$mnt/sessions.jso"
	check_fails "N3: $way: nor is anything below it" "No such file" stat "$mnt/sessions.jso/n"
	require umount "$mnt"

	for type in text/html application/x-directory application/json; do
		require put "${type##*/}/" "$tmp/hello" "type=$type"
	done
	require put_names html/inside out out/x
	require mount_wfs "$source" "$mnt" ttl=1,negative_ttl=1
	for type in html x-directory json; do
		is "$(stat -c %F "$mnt/$type")" directory "N4: $way: a key $type/ is a directory"
	done
	is "$(ls -A "$mnt/html")" inside "N4: $way: with what is below it"
	is "$(ls -A "$mnt/json")" "" "N4: $way: or empty"
	is "$(cat "$mnt/html/inside")" html/inside "N4: $way: which is read"

	is "$(find "$mnt" -maxdepth 1 -name out -printf '%y ')" "d " "N5: $way: out and out/x: one entry, the directory"
	is "$(cat "$mnt/out/x")" out/x "N5: $way: what is below it is read"
	is "$(ls "$mnt/out")" x "N5: $way: and listed"
	before=$(heads out)
	later() {
		ls -d "$mnt/out/." && [ "$(heads out)" -gt "$before" ]
	}
	check "N5: $way: when it is asked about again" soon 20 later
	is "$(cat "$mnt/out/x")" out/x "N5: $way: it still is"
	require umount "$mnt"

	[ "$way" = s3 ] || require stop_origin
	[ "$way" = s3 ] || require start_origin
done

require control PUT "/_/many$place/many/file-?count=100000"
require mount_wfs "$source" "$mnt" ttl=600
before=$(rss)
kernel=$(awk '$1 == "MemFree:" { print $2 }' /proc/meminfo)
# shellcheck disable=SC2012
is "$(ls -U "$mnt/many" | sort -u | wc -l)" 100000 "N7: $way: 100,000 names are listed, each once"
at_most $(($(rss) - before)) 150000 "N7: $way: KiB that the daemon grew by"
drop_caches
at_most $((kernel - $(awk '$1 == "MemFree:" { print $2 }' /proc/meminfo))) 300000 \
	"N7: $way: KiB that all of the machine grew by"
require forget_origin_log
# shellcheck disable=SC2012
is "$(ls -U "$mnt/many" | wc -l)" 100000 "N7: $way: listed again"
is "$(ask_origin count)" 0 "N7: $way: which asks the server nothing"
check "N7: $way: one of them is found" stat "$mnt/many/file-099999"
require umount "$mnt"
is "$(grep -c 'cannot be a path' "$wfsd_log" | sed 's/^[1-9].*/said/')" said "N1: the log says that keys are not shown"
