# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For tests on a kernel with fault injection. Sourced after lib.sh.

debugfs=/sys/kernel/debug
general="failslab fail_page_alloc fail_usercopy"

# begin_inject: allocations that may wait can fail too, quietly.
begin_inject() {
	local file

	if [ ! -d "$debugfs/failslab" ] || [ ! -e /proc/self/fail-nth ]; then
		skip_all "this kernel has no fault injection"
	fi
	for file in failslab/ignore-gfp-wait fail_page_alloc/ignore-gfp-wait \
		fail_page_alloc/ignore-gfp-highmem; do
		echo N >"$debugfs/$file"
	done
	echo 0 >"$debugfs/fail_page_alloc/min-order"
	for file in $general; do
		echo 0 >"$debugfs/$file/verbose"
	done
	clear_leaks
}

# clear_leaks: what was lost before is not this file's. Where files share a VM (all but in
# make check-all) it would hide what they have lost, which is looked for at the VM's end.
clear_leaks() {
	[ -z "${WFS_TEST_LONG-}" ] || [ ! -e "$debugfs/kmemleak" ] || echo clear >"$debugfs/kmemleak"
}

# only_below FUNCTION: only what that kernel function calls can fail; no argument: anything.
only_below() {
	local start=0 end=0xffffffffffffffff file

	if [ $# = 1 ]; then
		# The kernel's own come first, in the order of addresses.
		read -r start end < <(awk -v name="$1" '
			found && $1 != start { print "0x" start, "0x" $1; exit }
			$3 == name { found = 1; start = $1 }' /proc/kallsyms)
		[ -n "$start" ] || return
	fi
	for file in $general; do
		echo "$start" >"$debugfs/$file/require-start"
		echo "$end" >"$debugfs/$file/require-end"
	done
}

# inject POINT TIMES: of the module, from now on.
inject() {
	echo "$2" >"$debugfs/wfs/$1/times"
	echo 100 >"$debugfs/wfs/$1/probability"
}

# injected POINT: has it failed as often as it was to? Nothing more fails there.
injected() {
	local left

	left=$(cat "$debugfs/wfs/$1/times")
	echo 0 >"$debugfs/wfs/$1/probability"
	[ "$left" = 0 ]
}

# no_leak: nothing that was allocated since clear_leaks has been lost.
no_leak() {
	[ -n "${WFS_TEST_LONG-}" ] && [ -e "$debugfs/kmemleak" ] || return 0
	# The kernel looks at nothing that is younger than five seconds.
	wait_until 6 false
	echo scan >"$debugfs/kmemleak"
	echo scan >"$debugfs/kmemleak"
	cat "$debugfs/kmemleak"
	[ -z "$(cat "$debugfs/kmemleak")" ]
}
