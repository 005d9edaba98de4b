# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For the test scripts: TAP output, the daemon and mounts, servers. Sourced first:
#
#	#!/bin/bash
#	# SPDX-License-Identifier: MIT
#	# group: read
#	# kernels: 6.1 6.12 debug
#	. "$(dirname "$0")/lib.sh"
#
# Header lines, all optional:
#
#	# group: NAME		tests of one group share a VM (default: from the file name)
#	# kernels: ...		default "6.1 6.12"; debug = also in the smoke run on that kernel;
#				tests/run -a takes all, but for what names debug alone
#	# where: vm|host	default vm
#	# timeout: SECONDS	for the whole file, default 180 (times 5 on the debug kernel)
#	# needs: ceph		servers on the host
#	# memory: MIB		of the group's VM (the largest of the group counts)
#	# cache: MIB		size of its cache disk
#	# systemd: yes		systemd is process 1 in the group's VM
#	# full: yes		only in a run of everything (tests/run -a), or when it is named
#	# alone: yes		no other VM beside it: for what is measured in time
#
# Secrets that a file makes up have "wfssecret" in them, see secrets.sh.
#
# Each file starts with no module loaded, no daemon, an empty cache directory and
# no configuration. What it starts is ended by the runner afterwards.

tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -e /.vm/guest-lib ]; then
	# shellcheck source=vm/guest/guest-lib
	. /.vm/guest-lib
	# shellcheck disable=SC2034
	bin=$tests/bin
else
	# shellcheck source=vm/guest/guest-lib
	. "$tests/../vm/guest/guest-lib"
	# shellcheck disable=SC2034
	bin=$tests/../build/tests
fi
# No test asks the machine that it runs on for credentials.
export AWS_EC2_METADATA_DISABLED=true

# long SHORT LONG: how often, in an ordinary run and in one of everything (tests/run -a).
long() {
	[ -z "${WFS_TEST_LONG-}" ] && echo "$1" || echo "$2"
}

# Slow kernels get more time: every bound below is multiplied by this.
time_scale=${WFS_TIME_SCALE:-1}
tmp=${WFS_TEST_TMP:-$(mktemp -d)}
mkdir -p "$tmp"

wfsd_conf=/etc/wfs/wfsd.conf
wfsd_log=/var/log/wfsd.log
wfsd_sock=/run/wfs/wfsd.sock
wfsd_pid=

# ---- TAP ---------------------------------------------------------------------------

tap_count=0
tap_failed=0

diag() {
	local line

	while IFS= read -r line; do
		printf '# %s\n' "$line"
	done <<<"$*"
}

ok() {
	tap_count=$((tap_count + 1))
	printf 'ok %d - %s\n' "$tap_count" "$1"
}

# not_ok DESCRIPTION [DETAIL]
not_ok() {
	tap_count=$((tap_count + 1))
	tap_failed=$((tap_failed + 1))
	printf 'not ok %d - %s\n' "$tap_count" "$1"
	[ -z "${2-}" ] || diag "$2"
}

# skip DESCRIPTION REASON
skip() {
	tap_count=$((tap_count + 1))
	printf 'ok %d - %s # SKIP %s\n' "$tap_count" "$1" "$2"
}

# skip_all REASON: nothing in this file can run here.
skip_all() {
	tap_planned=1
	printf '1..0 # SKIP %s\n' "$1"
	exit 0
}

# check DESCRIPTION COMMAND...: ok when COMMAND succeeds; its output is shown when it fails.
# COMMAND runs in this shell, so that what it sets stays.
check() {
	local description=$1 status=0

	shift
	"$@" >"$tmp/check.log" 2>&1 || status=$?
	if [ "$status" = 0 ]; then
		ok "$description"
	else
		not_ok "$description" "$* gave status $status
$(head -c 4000 "$tmp/check.log")"
		return 1
	fi
}

# check_fails DESCRIPTION TEXT COMMAND...: ok when COMMAND fails and its output contains TEXT.
check_fails() {
	local description=$1 text=$2 output status=0

	shift 2
	output=$("$@" 2>&1) || status=$?
	if [ "$status" != 0 ] && [[ $output == *"$text"* ]]; then
		ok "$description"
	else
		not_ok "$description" "$* gave status $status, wanted a failure that says: $text
$output"
		return 1
	fi
}

# is GOT WANTED DESCRIPTION
is() {
	if [ "$1" = "$2" ]; then
		ok "$3"
	else
		not_ok "$3" "got    $1
wanted $2"
		return 1
	fi
}

# whole A B: are both whole numbers? For most a process is not needed to compare them.
whole() {
	local pattern='^-?(0|[1-9][0-9]*) -?(0|[1-9][0-9]*)$'

	[[ "$1 $2" =~ $pattern ]]
}

# at_most GOT LIMIT DESCRIPTION, at_least GOT LIMIT DESCRIPTION
at_most() {
	if whole "$1" "$2" && [ "$1" -le "$2" ] || ! whole "$1" "$2" &&
		awk -v got="$1" -v limit="$2" 'BEGIN { exit !(got != "" && got + 0 <= limit + 0) }'; then
		ok "$3 ($1)"
	else
		not_ok "$3" "got $1, wanted at most $2"
		return 1
	fi
}

at_least() {
	if whole "$1" "$2" && [ "$1" -ge "$2" ] || ! whole "$1" "$2" &&
		awk -v got="$1" -v limit="$2" 'BEGIN { exit !(got != "" && got + 0 >= limit + 0) }'; then
		ok "$3 ($1)"
	else
		not_ok "$3" "got $1, wanted at least $2"
		return 1
	fi
}

# require COMMAND...: a step without which the rest means nothing; in this shell, too.
require() {
	local status=0

	"$@" >"$tmp/require.log" 2>&1 || status=$?
	if [ "$status" != 0 ]; then
		not_ok "prepare: $*" "status $status
$(head -c 4000 "$tmp/require.log")"
		if [ -s "$wfsd_log" ]; then
			diag "$(tail -n 15 "$wfsd_log")"
		fi
		exit 1
	fi
}

# run_tap DESCRIPTION PROGRAM...: each result of a TAP program counts as one of this file.
run_tap() {
	local description=$1 line text status=0 seen=0 fifo=$tmp/tap.$BASHPID

	shift
	mkfifo "$fifo"
	"$@" >"$fifo" 2>&1 &
	local program=$!
	while IFS= read -r line; do
		case $line in
		'ok '*'# SKIP'*)
			seen=$((seen + 1))
			tap_text "${line%%# SKIP*}"
			skip "$description: $text" "${line##*# SKIP }"
			;;
		'ok '*)
			seen=$((seen + 1))
			tap_text "$line"
			ok "$description: $text"
			;;
		'not ok '*)
			seen=$((seen + 1))
			tap_text "$line"
			not_ok "$description: $text"
			;;
		1..* | 'TAP version'*) ;;
		*)
			diag "$line"
			;;
		esac
	done <"$fifo"
	wait "$program" || status=$?
	rm -f "$fifo"
	if [ "$seen" = 0 ] || { [ "$status" != 0 ] && [ "$tap_failed" = 0 ]; }; then
		not_ok "$description: ended with status $status after $seen results"
	fi
}

# tap_text LINE: in $text, what a result is about; without a process, there are hundreds.
tap_text() {
	text=$1
	[[ ! $1 =~ ^(not\ )?ok\ [0-9]*\ *(-\ )?(.*)$ ]] || text=${BASH_REMATCH[3]}
}

tap_planned=
tap_end() {
	local status=$?

	if [ -z "$tap_planned" ]; then
		[ "$status" = 0 ] || [ "$tap_failed" != 0 ] ||
			not_ok "the script ended with status $status"
		printf '1..%d\n' "$tap_count"
	fi
	[ "$tap_failed" = 0 ] || status=1
	exit "$status"
}
trap tap_end EXIT

# soon SECONDS COMMAND...: wait_until with the time this kernel needs.
soon() {
	local seconds=$1

	shift
	wait_until $((seconds * time_scale)) "$@"
}

# background PID_VARIABLE COMMAND...: start it and remember its process.
background() {
	local -n _pid=$1

	shift
	"$@" &
	_pid=$!
}

# gone PID: it has ended, with all its threads; whether or not its parent has noticed.
gone() {
	local line fields

	{ read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
	read -ra fields <<<"${line##*) }"
	[ "${fields[0]}" = Z ] && [ "${fields[17]}" -le 1 ]
}

# wait_for PID SECONDS: its status, or 124 when it does not end in time.
wait_for() {
	soon "$2" gone "$1" || return 124
	wait "$1"
}

# ---- module and daemon ---------------------------------------------------------------

load_module() {
	modprobe wfs "$@"
}

unload_module() {
	! grep -q '^wfs ' /proc/modules || soon 20 rmmod wfs 2>/dev/null
}

# configure TEXT: what wfsd.conf holds; more than one call adds to it.
configure() {
	mkdir -p "${wfsd_conf%/*}"
	printf '%s\n' "$*" >>"$wfsd_conf"
}

# answering: the daemon takes commands.
answering() {
	[ -S "$wfsd_sock" ] && kill -0 "$wfsd_pid" 2>/dev/null
}

# start_wfsd [ARGS...]: load the module, start the daemon, wait until it answers.
start_wfsd() {
	local config=()

	load_module || return
	[ ! -e "$wfsd_conf" ] || config=(--config "$wfsd_conf")
	rm -f "$wfsd_sock"
	wfsd --foreground "${config[@]}" "$@" >>"$wfsd_log" 2>&1 &
	wfsd_pid=$!
	echo "$wfsd_pid" >/run/wfs-test.pid
	soon 30 answering || {
		tail -n 20 "$wfsd_log" >&2
		return 1
	}
}

# stop_wfsd: ask it to end and wait for that.
stop_wfsd() {
	local pid=$wfsd_pid

	[ -n "$pid" ] || return 0
	wfsd_pid=
	kill "$pid" 2>/dev/null
	wait_for "$pid" 60
}

# kill_wfsd: no last words; returns when it is gone.
kill_wfsd() {
	local pid=$wfsd_pid

	wfsd_pid=
	kill -KILL "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	true
}

# mount_wfs SOURCE DIR [OPTIONS]
mount_wfs() {
	mkdir -p "$2"
	mount -t wfs ${3:+-o "$3"} "$1" "$2"
}

umount_wfs() {
	umount "$@"
}

# counter NAME: one of the daemon's counters.
counter() {
	local json

	# jq takes half a second to start here.
	json=$(wfs stat --json) && [[ $json =~ \"$1\":\ *([0-9.]+) ]] && echo "${BASH_REMATCH[1]}"
}

drop_caches() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# ---- data ------------------------------------------------------------------------------

# make_file PATH BYTES [SEED]: the same bytes for the same seed, never compressible.
make_file() {
	"$bin/make_data" -s "${3:-wfs}" "$1" "$2"
}

hash_file() {
	sha256sum <"$1" | cut -d' ' -f1
}

# same_files REFERENCE_DIR DIR: every file of one has the same bytes in the other.
same_files() {
	diff -rq --no-dereference "$1" "$2"
}

# ---- servers ------------------------------------------------------------------------------

# start_nginx ROOT [SERVER_DIRECTIVES]: serve ROOT at $nginx_url with JSON listings;
# the log has method, status, bytes, range and path of each request.
start_nginx() {
	local root=$1 port=${nginx_port:-8080}

	nginx_dir=$tmp/nginx
	nginx_log=$nginx_dir/access.log
	nginx_url=http://127.0.0.1:$port
	mkdir -p "$nginx_dir"
	# Directories below /tmp may be closed to other users.
	cat >"$nginx_dir/nginx.conf" <<-CONF
	user root;
	worker_processes 2;
	pid $nginx_dir/pid;
	error_log $nginx_dir/error.log;
	events { worker_connections 512; }
	http {
		log_format wfs '\$request_method \$status \$body_bytes_sent "\$http_range" \$request_uri';
		access_log $nginx_log wfs;
		client_body_temp_path $nginx_dir/body;
		proxy_temp_path $nginx_dir/proxy;
		fastcgi_temp_path $nginx_dir/fastcgi;
		uwsgi_temp_path $nginx_dir/uwsgi;
		scgi_temp_path $nginx_dir/scgi;
		sendfile on;
		keepalive_requests 100000;
		default_type application/octet-stream;
		server {
			listen 127.0.0.1:$port;
			root $root;
			location / {
				autoindex on;
				autoindex_format json;
			}
			${2-}
		}
	}
	CONF
	nginx -c "$nginx_dir/nginx.conf" || return
	soon 10 curl -s -o /dev/null "$nginx_url/"
	: >"$nginx_log"
}

stop_nginx() {
	local pid

	pid=$(cat "$nginx_dir/pid") || return 0
	kill "$pid" && soon 10 gone "$pid"
}

# count_gets [PATH_PATTERN]: GETs in nginx's log whose path matches, listings left out.
count_gets() {
	awk -v path="${1-}" '$1 == "GET" && $NF !~ /\/$/ && $NF ~ path { n++ } END { print n + 0 }' "$nginx_log"
}

# bytes_sent [PATH_PATTERN]: bytes of bodies in nginx's log.
bytes_sent() {
	awk -v path="${1-}" '$1 == "GET" && $NF !~ /\/$/ && $NF ~ path { n += $3 } END { print n + 0 }' "$nginx_log"
}

# start_server PORT COMMAND...: any server of the tests; returns when it listens.
start_server() {
	local port=$1

	shift
	"$@" >>"$tmp/server.$port.log" 2>&1 &
	server_pid=$!
	soon 30 listening "$port"
}

listening() {
	(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# s3 put|get|head|delete|mkbucket|rmbucket|list ARGS...: a client of its own (s3.py).
s3() {
	python3 "$tests/s3.py" "$@"
}
