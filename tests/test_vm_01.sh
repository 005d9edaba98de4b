#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The VM itself is what the other tests expect.
# kernels: 6.1 6.12
. "$(dirname "$0")/lib.sh"

is "$(stat -f -c %T /var/cache/wfs)" xfs "the cache directory is on XFS"
check "tools are there" which fio strace curl nginx jq python3 xfs_io
check "the tests' Python environment is used" python3 -c 'import numpy, safetensors.numpy'
make_file "$tmp/root/a.bin" 300000
start_nginx "$tmp/root"
check "nginx serves a file" curl -sf -o "$tmp/a.bin" "$nginx_url/a.bin"
is "$(hash_file "$tmp/a.bin")" "$(hash_file "$tmp/root/a.bin")" "with the same bytes"
is "$(count_gets a.bin)" 1 "and logs one GET"
is "$(bytes_sent a.bin)" 300000 "of its length"
is "$(curl -s "$nginx_url/" | jq -r '.[0].name')" a.bin "and lists it as JSON"
