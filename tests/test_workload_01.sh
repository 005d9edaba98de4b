#!/bin/bash
# SPDX-License-Identifier: MIT
# group: workload
# kernels: 6.1 6.12
# timeout: 420
#
# Each loader that reads whole files, by name: cold each byte is fetched once, then
# nothing is, neither from NVMe nor from the page cache.
. "$(dirname "$0")/lib.sh"
. "$tests/data.sh"

patterns="st-lazy st-two-region tp8 shared-fd vllm-prefetch eager runai fast-st llama-mmap
	llama-dio tail-first gguf-header cow drop wds"

make_data "$root/model" model-1.safetensors 8700003 model-2.safetensors 4194304 \
	model-3.safetensors 2291463 model-4.safetensors 300001
for pattern in $patterns; do
	ln -s model "$root/$pattern"
done
size=$(size_of "$root/model")
require start_nginx "$root"
require start_wfsd

for pattern in $patterns; do
	require mount_wfs "$nginx_url/$pattern/" "$mnt"
	reading "$pattern: cold" "$pattern" "$mnt" "$root/model"
	cold=$(figure seconds)
	share "$(bytes_sent "/$pattern/")" "$size" "$pattern"
	check "$pattern: all of it gets stored" stored "$mnt"/*
	drop_caches
	reading "$pattern: from NVMe" "$pattern" "$mnt" "$root/model"
	nvme=$(figure seconds)
	reading "$pattern: from the page cache" "$pattern" "$mnt" "$root/model"
	is "$(bytes_sent "/$pattern/")" "$size" "$pattern: neither fetched anything"
	diag "$pattern: $cold s, $nvme s, $(figure seconds) s"
	if [ "$pattern" = drop ]; then
		at_most "$(figure left)" $(($(figure resident) / 50)) "drop: the memory is free again"
	fi
	require umount "$mnt"
done
