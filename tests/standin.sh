# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For tests that use the stand-in helper instead of the daemon. Sourced after lib.sh.

standin_log=$tmp/standin.log
standin_pid=
standin_out=
said=

# start_standin [ARGS...]: load the module, start it, wait until it serves.
start_standin() {
	load_module || return
	[ -p "$tmp/standin.in" ] || mkfifo "$tmp/standin.in"
	[ -n "$standin_out" ] || forget_log
	"$bin/standin" "$@" <"$tmp/standin.in" >>"$standin_log" 2>&1 &
	standin_pid=$!
	exec {standin_fd}>"$tmp/standin.in"
	says ready || {
		tail -n 5 "$standin_log" >&2
		return 1
	}
}

# forget_log: of what it did before now.
forget_log() {
	: >"$standin_log"
	[ -z "$standin_out" ] || exec {standin_out}<&-
	exec {standin_out}<"$standin_log"
}

# says WORD: wait for its next line that begins so; kept in $said. Each line is read once,
# and without a process: there are hundreds of them.
says() {
	local end=$((SECONDS + 20 * time_scale))

	while :; do
		if ! read -r said <&"$standin_out"; then
			[ "$SECONDS" -lt "$end" ] || return 1
			read -r -t 0.01 -u "$pause_fd" _
		elif [[ $said == "$1 "* ]]; then
			return
		fi
	done
}

# begin_standin [ARGS...]: the same, or the end of the test. In this shell, unlike require.
begin_standin() {
	start_standin "$@" || {
		not_ok "prepare: the stand-in" "$(tail -n 5 "$standin_log")"
		exit 1
	}
}

# lines PATTERN: how many lines of the stand-in's output match.
lines() {
	grep -c -- "$1" "$standin_log" 2>/dev/null || true
}

more_lines() {
	local n

	n=$(lines "$1")
	[ "${n:-0}" -gt "${2:-0}" ]
}

# tell LINE: a line of script or a command; prints its result.
tell() {
	printf '%s\n' "$1" >&"$standin_fd"
	says did || return
	printf '%s\n' "${said##* }"
}

# stop_standin: as the daemon would, by DETACH.
stop_standin() {
	[ -n "$standin_pid" ] || return 0
	{ printf "detach\n" >&"$standin_fd"; } 2>/dev/null
	soon 20 gone "$standin_pid" || kill -KILL "$standin_pid"
	wait "$standin_pid" 2>/dev/null
	exec {standin_fd}>&-
	standin_pid=
}

# kill_standin: no last words.
kill_standin() {
	kill -KILL "$standin_pid" 2>/dev/null
	wait "$standin_pid" 2>/dev/null
	exec {standin_fd}>&-
	standin_pid=
}

# fault_result REQUEST ACTION: what the kernel answered to the last wrong of this kind.
fault_result() {
	local line last='' end=$((SECONDS + 20 * time_scale))

	while [ -z "$last" ] && [ "$SECONDS" -le "$end" ]; do
		while read -r line; do
			[[ $line != "fault $1 $2 "* ]] || last=${line##* }
		done <"$standin_log"
		[ -n "$last" ] || pause
	done
	printf '%s\n' "$last"
}

# content_hash PATH VERSION SIZE: of a file as the stand-in serves it.
content_hash() {
	"$bin/standin" -c "$1" "$2" "$3" | sha256sum | cut -d' ' -f1
}

# few: leave this case out? Replies are checked in one place whatever brings them: by
# ioctl every fourth is enough, and on a slow kernel every sixth of what is left.
turn=0
few() {
	local step=1

	[ -z "$how" ] || step=4
	[ "$time_scale" = 1 ] || step=$((step * 6))
	turn=$((turn + 1))
	[ $((turn % step)) != 0 ]
}
