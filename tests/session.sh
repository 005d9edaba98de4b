#!/bin/bash
# SPDX-License-Identifier: MIT
#
#	session.sh [-x FACTOR] FILE...
#
# Run test scripts one after another in a VM (tests/run starts this), each from a
# clean state and followed by a check that it left none: nothing mounted, no
# process, the module unloaded, a quiet kernel log; and no secret anywhere. Prints TAP lines that carry the
# file's name, and for each file
#
#	# begin NAME
#	# done NAME PASSED FAILED SKIPPED SECONDS
#
# When a file leaves a state that cannot be cleaned, it stops with "# restart" and
# the files left are run in a fresh VM.

tests=$(cd "$(dirname "$0")" && pwd)
. /.vm/guest-lib
. "$tests/secrets.sh"
[ ! -e "$tests/env" ] || . "$tests/env"
if [ -n "${WFS_TRANSPORT-}" ] && [ -d /run/systemd/system ]; then
	systemctl set-environment WFS_TRANSPORT="$WFS_TRANSPORT"
fi
scale=1
if [ "$1" = -x ]; then
	scale=$2
	shift 2
fi
export WFS_TIME_SCALE=$scale
export WFS_TEST_TMP=/var/tmp/wfs-test
WFS_RUN_ID=$(uname -r | tr -c 'a-z0-9\n' -)-$RANDOM
export WFS_RUN_ID
group=/sys/fs/cgroup/wfs-test
saved=/var/tmp/wfs-saved

# gone PID: it has ended, with all its threads; whether or not its parent has noticed.
gone() {
	local line fields

	{ read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
	read -ra fields <<<"${line##*) }"
	[ "${fields[0]}" = Z ] && [ "${fields[17]}" -le 1 ]
}

no_process() {
	[ ! -s "$group/cgroup.procs" ]
}

mounts() {
	awk '{ print $2 }' /proc/mounts
}

# The lines of one file's output, named and counted; the counts go to a file.
# shellcheck disable=SC2016
name_lines='
function result(line) { print line; fflush() }
/^(not )?ok / {
	seen++
	if ($0 ~ /^ok .*# SKIP/) skipped++
	else if ($0 ~ /^ok /) passed++
	else failed++
	match($0, /^(not )?ok/)
	verdict = substr($0, 1, RLENGTH)
	text = substr($0, RLENGTH + 1)
	sub(/^ *[0-9]* *(- )?/, "", text)
	result(verdict " - " name ": " text)
	next
}
/^1\.\.[0-9]+/ {
	plan = substr($1, 4)
	planned = 1
	if ($0 ~ /# SKIP/) { skipped++; text = $0; sub(/.*# SKIP */, "", text)
		result("ok - " name " # SKIP " text) }
	next
}
/^#/ { result($0); next }
/./ { result("# " $0) }
END {
	if (!planned) { failed++; result("not ok - " name ": ended without a plan") }
	else if (plan != seen) { failed++; result("not ok - " name ": planned " plan " results, gave " seen + 0) }
	print passed + 0, failed + 0, skipped + 0 >counts
}'

# Findings of the runner itself, beside what the file said.
extra_failed=0
finding() {
	extra_failed=$((extra_failed + 1))
	printf 'not ok - %s: %s\n' "$name" "$1"
}

show() {
	sed 's/^/# /' | head -n "${1:-60}"
}

show_processes() {
	local pid

	while read -r pid; do
		printf '# %s %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
		grep -E '^State' "/proc/$pid/status" | show
		show 12 <"/proc/$pid/stack"
	done <"$group/cgroup.procs" 2>/dev/null
}

# leaks: the places that show a secret of the tests, while the daemon still runs.
leaks() {
	local pid

	grep -alE "$secret_pattern" /var/log/wfsd.log /proc/mounts /sys/kernel/debug/wfs/* 2>/dev/null
	find /run/wfs /var/cache/wfs/index /var/cache/wfs/*/index -type f \
		-exec grep -alE "$secret_pattern" {} + 2>/dev/null
	dmesg | grep -qE "$secret_pattern" && echo "the kernel log"
	journalctl -q -o cat 2>/dev/null | grep -qE "$secret_pattern" && echo "the journal"
	# A longer pattern would match nothing.
	for pid in $(pgrep -x 'wfsd|wfs') $(pgrep -x mount.wfs); do
		tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qE "$secret_pattern" &&
			echo "the arguments of process $pid"
	done
	# Every process of the tests has what their own client of S3 is told; the daemon reads none.
	for pid in $(pgrep -x wfsd); do
		tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -v '^WFS_S3_' |
			grep -qE "$secret_pattern" &&
			echo "the environment of process $pid"
	done
	find / /root /tmp /var/tmp /var/crash -maxdepth 1 -type f -name 'core*' 2>/dev/null
}

# unmount_new: everything mounted since the session began, last first.
unmount_new() {
	local dir

	while read -r dir; do
		timeout 20 umount "$dir" 2>/dev/null
	done < <(mounts | grep -vxFf "$saved/mounts" | tac)
	! mounts | grep -qvxFf "$saved/mounts"
}

# clean: take away what the file left; 1 when that is impossible.
clean() {
	local pid

	unmount_new
	if pid=$(cat /run/wfs-test.pid 2>/dev/null) && kill -TERM "$pid" 2>/dev/null; then
		wait_until $((20 * scale)) gone "$pid" || finding "wfsd does not end when asked to"
	fi
	systemctl -q stop wfsd.service 2>/dev/null
	echo 1 >"$group/cgroup.kill"
	if ! wait_until $((20 * scale)) no_process; then
		finding "processes cannot be killed"
		show_processes
		return 1
	fi
	if ! wait_until $((20 * scale)) unmount_new; then
		finding "cannot be unmounted: $(mounts | grep -vxFf "$saved/mounts" | tr '\n' ' ')"
		return 1
	fi
	if grep -q '^wfs ' /proc/modules && ! wait_until $((20 * scale)) rmmod wfs 2>/dev/null; then
		finding "the module does not unload: $(grep '^wfs ' /proc/modules)"
		return 1
	fi
	mountpoint -q /var/cache/wfs || return 1
	rm -rf /var/cache/wfs/* /run/wfs /run/wfs-test.pid /etc/wfs "$WFS_TEST_TMP" /var/log/wfsd.log
	[ ! -d "$saved/etc-wfs" ] || cp -a "$saved/etc-wfs" /etc/wfs
}

run_file() {
	local file=$tests/$1 limit pid reader status=0 began=$SECONDS passed failed skipped clean=1
	name=${1#test_}
	name=${name%.sh}

	extra_failed=0
	limit=$(sed -n 's/^# timeout: *\([0-9]*\).*/\1/p;20q' "$file")
	limit=$((${limit:-180} * scale))
	printf '# begin %s\n' "$name"
	printf 'wfs-test: begin %s\n' "$name" >/dev/kmsg
	mkdir -p "$WFS_TEST_TMP" "$group"
	mkfifo "$saved/output"
	gawk -v name="$name" -v counts="$saved/counts" "$name_lines" <"$saved/output" &
	reader=$!
	(
		echo "$BASHPID" >"$group/cgroup.procs"
		cd "$WFS_TEST_TMP" && exec setsid bash "$file"
	) </dev/null >"$saved/output" 2>&1 &
	pid=$!
	if wait_until "$limit" gone "$pid"; then
		wait "$pid" || status=$?
	else
		echo w >/proc/sysrq-trigger
		finding "not done after $limit s"
		show_processes
		kill -TERM "$pid" 2>/dev/null
		wait_until 10 gone "$pid"
	fi
	leaks >"$saved/leaks"
	if [ -s "$saved/leaks" ]; then
		finding "a secret shows, or a core file lies about: $(tr '\n' ' ' <"$saved/leaks")"
	fi
	clean || clean=0
	# Whoever holds the output open is gone now, or never goes.
	if wait_until 10 gone "$reader"; then
		read -r passed failed skipped <"$saved/counts"
	else
		kill "$reader"
		passed=0 failed=0 skipped=0
		finding "its output stays open"
	fi
	rm -f "$saved/output" "$saved/counts"
	if [ "$status" != 0 ] && [ "$failed" = 0 ] && [ "$extra_failed" = 0 ]; then
		finding "ended with status $status"
	fi
	dmesg | sed -n "/wfs-test: begin $name\$/,\$p" >"$saved/log"
	if ! /.vm/kernel-log "$saved/log" >"$saved/bad"; then
		finding "the kernel reported trouble"
		show 120 <"$saved/bad"
	fi
	printf '# done %s %d %d %d %d\n' "$name" "$passed" $((failed + extra_failed)) "$skipped" \
		$((SECONDS - began))
	[ "$clean" = 1 ]
}

mkdir -p "$saved"
rm -rf "${saved:?}"/*
mounts >"$saved/mounts"
[ ! -d /etc/wfs ] || cp -a /etc/wfs "$saved/etc-wfs"
for file; do
	if ! run_file "$file"; then
		echo "# restart"
		exit 0
	fi
done
