#!/bin/bash
# SPDX-License-Identifier: MIT
# group: kunit
# where: vm
# kernels: debug
#
# The block map alone, by KUnit: the suite runs when the module is loaded.
. "$(dirname "$0")/lib.sh"

results=/sys/kernel/debug/kunit/wfs-blockmap/results

mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
require load_module
check "the suite has run" grep -q wfs-blockmap "$results"
while read -r line; do
	case $line in
	"ok "[0-9]*) ok "${line#* - }" ;;
	"ok "*) ok "${line#ok * }" ;;
	"not ok "*) not_ok "${line#not ok }" "$(cat "$results")" ;;
	esac
done < <(grep -E '^ +(not )?ok ' "$results" | sed 's/^ *//')

