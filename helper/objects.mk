# SPDX-License-Identifier: MIT
#
# Which object belongs to which program.

# Shared by the daemon, the command and the unit tests.
COMMON_OBJS := \
	loop.o loop_uring.o loop_epoll.o loop_pool.o loop_curl.o retry.o \
	origin.o origin_path.o endpoint.o validator.o crc.o digest.o parts.o offers.o kept.o \
	http.o http_receive.o http_url.o http_reply.o http_index.o origin_http.o origin_http_create.o \
	origin_s3.o origin_s3_create.o s3_request.o s3_xml.o sigv4.o inifile.o \
	credentials.o credentials_wait.o credentials_text.o credentials_profile.o credentials_sts.o \
	credentials_metadata.o credentials_http.o \
	origin_file.o \
	mirror.o mirror_read.o mirror_join.o mirror_names.o mirror_rank.o mirror_hedge.o mirror_list.o \
	listing.o names.o names_record.o names_call.o \
	log.o events.o counters.o config.o buffers.o \
	core.o core_origin.o object.o block.o fetch.o flight.o hold.o usage.o faultpoint.o \
	store.o store_read.o store_dir.o store_source.o store_collect.o store_file.o store_io.o \
	store_index.o store_index_fault.o store_index_read.o store_index_change.o store_thread.o evict.o \
	ask.o order.o order_load.o order_ahead.o plan.o shard.o profile.o profile_json.o profile_file.o

# The daemon: main file wfsd.c.
WFSD_OBJS := wfsd.o server.o server_command.o server_profile.o job.o job_files.o check.o verify.o report.o metrics.o ratios.o control.o \
	kernel.o channel.o payload.o harden.o \
	requests.o requests_mount.o requests_names.o requests_data.o node.o

# The command: main file wfs.c.
WFS_OBJS := wfs.o client.o show.o progress.o control.o \
	cmd_mounts.o cmd_events.o cmd_stat.o cmd_fetch.o cmd_verify.o cmd_prefetch.o cmd_drop.o cmd_profile.o

# The mount helper: main file mount.c.
MOUNT_OBJS := mount.o
