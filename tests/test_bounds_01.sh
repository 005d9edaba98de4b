#!/bin/bash
# SPDX-License-Identifier: MIT
# group: bounds
# kernels: 6.12
# cache: 1024
# full: yes
#
# Memory of daemon and module with 1,000 open files, 100,000 names and a sparse file of
# 2 TiB stays within what design.rst works out, and is given back.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

files=1000
names=100000
reads=128
block_kib=256
size=$((2 << 40))
buffers_mib=64
memory=/sys/kernel/debug/wfs/memory

# held KIND, held_bytes KIND: what the module has of it.
held() {
	sed -n "s/^$1 \([0-9]*\) .*/\1/p" "$memory"
}
held_bytes() {
	sed -n "s/^$1 [0-9]* //p" "$memory"
}
none_held() {
	[ "$(held "$1")" = 0 ] && [ "$(held_bytes "$1")" = 0 ]
}
# kib FIELD: of the daemon.
kib() {
	awk -v field="$1:" '$1 == field { print $2 }' "/proc/$wfsd_pid/status"
}

# A file that is nothing but holes and a few bytes, and small ones.
require python3 - "$tmp/tree" $files $size $reads <<'PY'
import os, random, sys
base, files, size, reads = sys.argv[1], *map(int, sys.argv[2:])
os.makedirs(base)
for i in range(files):
    with open(f"{base}/{i}", "w") as file:
        file.write(f"file {i}")
with open(f"{base}/sparse", "wb") as file:
    file.truncate(size)
    for at in random.Random(1).sample(range(size // 4096), reads):
        file.seek(at * 4096)
        file.write(b"%4096d" % at)
for name in os.listdir(base):
    os.utime(f"{base}/{name}", (1577836800, 1577836800))
PY
# The listing of a directory with so many names, as nginx makes it.
require python3 - "$tmp/tree/many.json" $names <<'PY'
import json, sys
with open(sys.argv[1], "w") as file:
    json.dump([{"name": "file-%06d" % i, "type": "file", "mtime": "Wed, 01 Jan 2020 00:00:00 GMT",
                "size": 1} for i in range(int(sys.argv[2]))], file, indent=0)
PY
listing_mib=$(($(stat -c %s "$tmp/tree/many.json") / 1048576 + 1))
configure "[fetch]
buffer_memory = ${buffers_mib}M"
require start_nginx "$tmp/tree" "location = /many/ { default_type application/json; try_files /many.json =404; }"
require start_wfsd
start=$(kib VmRSS)
at_most "$start" $(((buffers_mib + 32) * 1024)) "KiB of a daemon that has nothing to do"
require mount_wfs "$nginx_url/" "$mnt.files" block=${block_kib}K,readahead=${block_kib}K,prefetch=off
require mount_wfs "$nginx_url/many/" "$mnt.names"

# ---- all of it at once

cat >"$tmp/hold.py" <<'PY'
"""Opens and reads all files, reads the sparse one where it has bytes; keeps them open."""
import os, random, sys
base, files, size, reads = sys.argv[1], *map(int, sys.argv[2:])
held = [os.open(f"{base}/{i}", os.O_RDONLY) for i in range(files)]
for i, fd in enumerate(held):
    if os.pread(fd, 100, 0) != b"file %d" % i:
        sys.exit(f"file {i} is wrong")
held.append(os.open(f"{base}/sparse", os.O_RDONLY))
for at in random.Random(1).sample(range(size // 4096), reads):
    if os.pread(held[-1], 4096, at * 4096) != b"%4096d" % at:
        sys.exit(f"page {at} is wrong")
print("all", flush=True)
sys.stdin.read()
PY
mkfifo "$tmp/hold"
python3 "$tmp/hold.py" "$mnt.files" $files $size $reads <"$tmp/hold" >"$tmp/held" 2>&1 &
holder=$!
exec {hold}>"$tmp/hold"
# shellcheck disable=SC2012
is "$(ls -U "$mnt.names" | wc -l)" $names "100,000 names are listed"
opened() {
	[ -s "$tmp/held" ]
}
require soon 60 opened
is "$(cat "$tmp/held")" all "1,000 files are open, a sparse one of 2 TiB is read here and there, all bytes right"
check "what was read gets stored" wfs sync

at_least "$(held nodes)" $((files + 1)) "the module: nodes"
at_most "$(held_bytes nodes)" $((1024 * $(held nodes))) "  bytes, at most 1 KiB each"
at_most "$(held_bytes states)" $((reads * (128 + 4 * 524288 / block_kib) + files * 132)) "  bytes of block states"
at_most "$(held_bytes sums)" $((reads * 65536 + files * 8)) "  bytes of sums"
at_most "$(held_bytes listings)" $((names * 40)) "  bytes of listings"
check "  no request is left" soon 10 none_held requests
check "  no folio is in flight" soon 10 none_held folios
total=$(awk '{ n += $3 } END { print int(n / 1048576) }' "$memory")
at_most "$total" 16 "the module: MiB in all"
diag "$(cat "$memory")"
diag "$(grep -E '^(VmHWM|VmRSS|Rss)' "/proc/$wfsd_pid/status")"
at_most $(($(kib VmRSS) / 1024)) $((buffers_mib + 64)) "the daemon: MiB"
at_most $(($(kib VmHWM) / 1024)) $((buffers_mib + 64 + 10 * listing_mib)) \
	"  at the worst moment, with a listing in its hands"
at_most "$(($(kib VmRSS) - $(counter resident_bytes) / 1024))" 2048 "  of which wfs stat tells (all but KiB)"
at_least "$(wfs stat --json | jq .kernel.nodes)" $((files + 1)) "  nodes that it knows"

# ---- and given back

exec {hold}>&-
check "the files are closed" wait_for "$holder" 20
forgotten() {
	echo 3 >/proc/sys/vm/drop_caches
	[ "$(held nodes)" -le 1 ]
}
check "what nobody has open goes under memory pressure" soon 20 forgotten
require umount "$mnt.files" "$mnt.names"
for kind in nodes requests folios states sums listings; do
	check "after unmounting, nothing is held: $kind" soon 10 none_held "$kind"
done
helper_forgot() {
	[ "$(wfs stat --json | jq -c '[.kernel.nodes, .kernel.mounts]')" = "[0,0]" ]
}
check "the daemon knows no node and no mount" soon 10 helper_forgot
diag "$(grep -E '^(VmHWM|VmRSS|Rss)' "/proc/$wfsd_pid/status")"
at_most $((($(kib VmRSS) - start) / 1024)) 64 "MiB more than at its start"
