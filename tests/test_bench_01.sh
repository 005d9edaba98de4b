#!/bin/bash
# SPDX-License-Identifier: MIT
# group: bench
# where: host
# kernels: none
# timeout: 60
#
# The arithmetic of the benchmark, and that its patterns, its reader and its proxy agree with
# what is said of them. Seconds; the benchmark itself is `make bench`.
. "$(dirname "$0")/lib.sh"

run_tap "bench" python3 -B "$tests/bench/selftest.py" "$bin/reader"

# What is measured is checked, too: a byte that is wrong at the right place is noticed.
"$bin/make_data" "$tmp/data" a 3000000
cp "$tmp/data/a" "$tmp/copy"
check "stamps: right bytes pass" "$bin/reader" read1m "$tmp/copy" "$tmp/data/a" --stamps --measure
printf x | dd of="$tmp/copy" bs=1 seek=$((4096 * 300)) conv=notrunc status=none
for pattern in read1m read8 mmap-scan direct4m st-lazy; do
	check_fails "stamps: $pattern notices a wrong page" "wrong bytes at $((4096 * 300))" \
		"$bin/reader" $pattern "$tmp/copy" "$tmp/data/a" --stamps --measure
done
