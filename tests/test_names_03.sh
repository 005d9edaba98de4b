#!/bin/bash
# SPDX-License-Identifier: MIT
# group: names
# kernels: 6.1 6.12
#
# Odd names over HTTP are distinct files that open and read right.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

names=('hash#tag' 'what?' '100%' 'a+b' 'a b' 'a&b' 'pc%25' 'pc%2Fx' 'ümläut' '日本' 'semi;colon' "quo'te"
	'dou"ble' 'back\slash' 'line
feed' '-dash' '~tilde' '[brackets]' '{braces}' 'col:on' '@at' '*star' '$dollar' '<less>' '...' '.hidden'
	'tab	bed' 'trailing ' ' leading')
for name in "${names[@]}"; do
	make_data "$root/odd" "$name" $((1000 + ${#name}))
done
make_data "$root" sessions.json 10 'dir with space/#/file' 20
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt"

# nginx leaves out what begins with a dot.
is "$(cd "$mnt/odd" && find . -type f | sort)" \
	"$(cd "$root/odd" && find . -type f ! -name '.*' | sort)" "N2: all of them are listed"
for name in "${names[@]}"; do
	text=$(printf %q "$name")
	is "$(stat -c %s "$mnt/odd/$name" 2>&1)" "$(stat -c %s "$root/odd/$name")" "N2: stat $text"
	check "N2: read $text" cmp "$mnt/odd/$name" "$root/odd/$name"
done
require umount "$mnt"
require mount_wfs "$nginx_url/" "$mnt"
for name in "${names[@]}"; do
	check "opened directly, before any listing: $(printf %q "$name")" \
		cmp "$mnt/odd/$name" "$root/odd/$name"
done
check "in a directory of such names" cmp "$mnt/dir with space/#/file" "$root/dir with space/#/file"
check_fails "N3: a prefix of a name is not there" "No such file" stat "$mnt/sessions.jso"
check_fails "nor a name with more" "No such file" stat "$mnt/sessions.jsonx"
require umount "$mnt"
# A source with such a name in its path is given as a URL.
require mount_wfs "$nginx_url/dir%20with%20space/" "$mnt"
check "a source with a quoted path" cmp "$mnt/#/file" "$root/dir with space/#/file"
