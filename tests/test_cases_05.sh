#!/bin/bash
# SPDX-License-Identifier: MIT
# group: cases
# where: host
# kernels: none
#
# Each failure that Documentation/testing.rst lists by its id has a test: the files named
# beside it have checks whose description begins with the id.
. "$(dirname "$0")/lib.sh"

table=$tests/../Documentation/testing.rst
# Lines of the table: ID, what it is, the files.
rows() {
	grep -E '^[ACNOPV][0-9]+ +[^ ]' "$table"
}
missing=
while read -r id rest; do
	files=$(grep -oE '[a-z0-9]+_[0-9]{2}' <<<"$rest")
	[ -n "$files" ] || missing+=" $id (no file)"
	for file in $files; do
		grep -qE "(^|[^A-Za-z0-9])$id: " "$tests/test_$file.sh" || missing+=" $id in $file"
	done
done < <(rows)
is "$missing" "" "each id stands in the files that the table names"
is "$(rows | cut -d' ' -f1 | sort | uniq -d | tr '\n' ' ')" "" "no id stands there twice"
wanted=$(printf '%s\n' A{1..3} C{1..8} N{1..7} O{1..12} P{1..6} V{1..5} | sort | tr '\n' ' ')
is "$(rows | cut -d' ' -f1 | sort | tr '\n' ' ')" "$wanted" "the table is complete"
