#!/bin/bash
# SPDX-License-Identifier: MIT
# group: mmap
# kernels: 6.1 6.12
#
# huge=: never uses no huge page, advise only where the program asks.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

make_data "$root" a 16777216
require start_nginx "$root"
require start_wfsd
require mount_wfs "$nginx_url/" "$mnt" huge=never
reading "huge=never: in order" scan "$mnt/a" "$root/a"
is "$(figure pmd)" 0 "huge=never: no huge page"
require umount "$mnt"
require mount_wfs "$nginx_url/" "$mnt" huge=advise
reading "huge=advise: in order" scan "$mnt/a" "$root/a"
# Not on 6.1: it maps a folio of that size huge whatever the mapping's flags say, once the
# read-ahead of a stream has grown to it.
case $(uname -r) in
6.1.*) ;;
*) is "$(figure pmd)" 0 "huge=advise: no huge page unless asked" ;;
esac
require umount "$mnt"
require mount_wfs "$nginx_url/" "$mnt"
reading "by default: in order" scan "$mnt/a" "$root/a"
is "$(figure pmd)" 16777216 "by default: huge pages"
