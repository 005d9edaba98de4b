#!/bin/bash
# SPDX-License-Identifier: MIT
# group: crash
# where: host
# kernels: none
# timeout: 2400
#
# VMs killed while their cache fills and evicts: the next one serves no wrong byte from it.
. "$(dirname "$0")/lib.sh"

kills=$(long 2 50)
top=$(cd "$tests/.." && pwd)
data=$tmp/data
vm=
stop_vm() {
	[ -z "$vm" ] || pkill -KILL -P "$vm" qemu-system
	wait 2>/dev/null
}
trap 'status=$?; stop_vm; (exit "$status"); tap_end' EXIT

# As old as their version must be to be sure.
for size in 20000003 9437184 12582912 70001 30000000; do
	make_file "$data/$size" "$size" "$size"
	touch -d '2020-01-01 00:00:00 UTC' "$data/$size"
done
# The scripts and their programs, as a VM sees them.
require test -x "$bin/part"
mkdir -p "$tmp/in"
cp -a "$tests" "$tmp/in/tests"
cp -aT "$bin" "$tmp/in/tests/bin"

# killed STEPS: a VM on the disk of those before it, killed after so many steps.
killed() {
	local left=$1 line

	checked=
	mkfifo "$tmp/out"
	"$top/vm/run" -n -k 6.12 -m 2048 -c 400 -d "$tmp/disk" -t 300 -l "$tmp/kernel.log" -i "$tmp/in/tests" \
		-i "$data" -- /in/tests/crash_guest.sh >"$tmp/out" 2>"$tmp/errors" &
	vm=$!
	while read -r line; do
		case $line in
		checked*) checked=$line ;;
		step)
			left=$((left - 1))
			[ "$left" -gt 0 ] || pkill -KILL -P "$vm" qemu-system
			;;
		esac
	done <"$tmp/out"
	wait "$vm"
	vm=
	rm -f "$tmp/out"
	if [ "$left" -gt 0 ] || [ -z "$checked" ]; then
		tail -n 20 "$tmp/errors"
		return 1
	fi
}

for ((i = 0; i <= kills; i++)); do
	steps=$((RANDOM % 60 + 1))
	check "kill $i, after $steps steps" killed "$steps" || exit
	read -r _ wrong corrupt from_cache <<<"$checked"
	is "$wrong $corrupt" "0 0" "C7: the VM after $i kills finds no wrong byte and no bad block"
	[ "$i" -eq 0 ] || at_least "$from_cache" 10000000 "bytes served from the cache of a VM killed after $last steps"
	last=$steps
done
