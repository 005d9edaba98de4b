#!/bin/bash
# SPDX-License-Identifier: MIT
# group: read
# kernels: 6.12
# timeout: 240
#
# A mount with a mirror: its option, reads from both, and from the mirror alone once the
# source has gone.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root/d" a 20000003 b 12000001 c 9000007
require start_nginx "$root"
source_url=$nginx_url/d/
source_dir=$nginx_dir
mirror_port=8081
mirror_url=http://127.0.0.1:$mirror_port/d/

# start_mirror: a second nginx with the same files.
start_mirror() {
	local nginx_port=$mirror_port nginx_dir nginx_log nginx_url
	local tmp=$tmp/mirror

	mkdir -p "$tmp"
	start_nginx "$root"
}
require start_mirror
require start_wfsd

# mirror FIELD: of the mirror.
mirror() {
	wfs stat --json | jq -r --arg url "$mirror_url" \
		"[.origins[].mirrors[] | select(.mirror == \$url)][0].$1"
}
joined() {
	[ "$(mirror joined)" -ge "$1" ]
}

check_fails "what is no mirror refuses the mount" "mirror: http(s)://HOST/PATH/ is the form" \
	mount_wfs "$source_url" "$mnt" mirror=ftp://127.0.0.1/d/
require mount_wfs "$source_url" "$mnt" "block=256K,mirror=\"$mirror_url,trust\""
require umount "$mnt"
require mount_wfs "$source_url" "$mnt" "block=256K,mirror=$mirror_url"
check "the option is shown" grep -q "mirror=$mirror_url" /proc/mounts
reading "all of a file" random "$mnt/a" "$root/d/a" --block 256K --seed 1
soon 20 joined 1
reading "and of another one" random "$mnt/b" "$root/d/b" --block 256K --seed 2
at_least "$(awk '$1 == "GET"' "$tmp/mirror/nginx/access.log" | wc -l)" 1 "some of it came from the mirror"

stat -c %s "$mnt/c" >"$tmp/size"
source_pid=$(cat "$source_dir/pid")
require kill "$source_pid"
require soon 10 gone "$source_pid"
reading "a file whose source has gone since" random "$mnt/c" "$root/d/c" --block 256K --seed 3
is "$(wfs stat --json | jq -r --arg url "$source_url" \
	'[.origins[].mirrors[] | select(.mirror == $url)][0].resting')" true "the source rests"
require umount "$mnt"
