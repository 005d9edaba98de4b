#!/bin/bash
# SPDX-License-Identifier: MIT
# group: fuzz
# where: host
# kernels: none
# timeout: 300
#
# A minute of fuzzing: each target from its seeds on.
. "$(dirname "$0")/lib.sh"

seconds=8
seed=$(($(date +%s) % 1000000000 + 1))
targets=("$tests"/../build/fuzz/fuzz_*)

is "${#targets[@]}" "$(find "$tests/../helper/fuzz" -name 'fuzz_*.c' | wc -l)" "all targets are built"
for target in "${targets[@]}"; do
	name=${target##*/fuzz_}
	if output=$("$tests/../helper/fuzz/run" -n -s "$seconds" -r "$seed" "$name" 2>&1); then
		ok "$output"
	else
		not_ok "$name finds nothing" "$output"
	fi
done
