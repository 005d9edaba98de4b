/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * trace: events with the request id that the helper's log carries too, so that a
 * script can follow a miss through both.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM wfs

#if !defined(_WFS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _WFS_TRACE_H

#include <linux/tracepoint.h>

#include "../uapi/wfs.h"

#define show_req(op) __print_symbolic(op, \
	{ WFS_REQ_MOUNT, "mount" }, { WFS_REQ_UNMOUNT, "unmount" }, \
	{ WFS_REQ_LOOKUP, "lookup" }, { WFS_REQ_GETATTR, "getattr" }, \
	{ WFS_REQ_READDIR, "readdir" }, { WFS_REQ_READLINK, "readlink" }, \
	{ WFS_REQ_OPEN, "open" }, { WFS_REQ_MAP, "map" }, { WFS_REQ_FILL, "fill" }, \
	{ WFS_REQ_FORGET, "forget" }, { WFS_REQ_RESUMED, "resumed" })

TRACE_EVENT(wfs_request,
	TP_PROTO(u64 id, u32 opcode, u64 mount, u64 node, u64 block, u32 unit, u32 units, u32 why),
	TP_ARGS(id, opcode, mount, node, block, unit, units, why),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, mount)
		__field(u64, node)
		__field(u64, block)
		__field(u32, opcode)
		__field(u32, unit)
		__field(u32, units)
		__field(u32, why)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->mount = mount;
		__entry->node = node;
		__entry->block = block;
		__entry->opcode = opcode;
		__entry->unit = unit;
		__entry->units = units;
		__entry->why = why;
	),
	TP_printk("req=%llu %s mount=%llu node=%llu block=%llu units=%u+%u why=%u",
		  __entry->id, show_req(__entry->opcode), __entry->mount, __entry->node,
		  __entry->block, __entry->unit, __entry->units, __entry->why)
);

TRACE_EVENT(wfs_end,
	TP_PROTO(u64 id, u32 opcode, int status, s64 us),
	TP_ARGS(id, opcode, status, us),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(s64, us)
		__field(u32, opcode)
		__field(int, status)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->us = us;
		__entry->opcode = opcode;
		__entry->status = status;
	),
	TP_printk("req=%llu %s status=%d us=%lld", __entry->id, show_req(__entry->opcode),
		  __entry->status, __entry->us)
);

TRACE_EVENT(wfs_deliver,
	TP_PROTO(u64 id, u64 node, u64 block, u32 unit, u32 units, u64 copied),
	TP_ARGS(id, node, block, unit, units, copied),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, node)
		__field(u64, block)
		__field(u64, copied)
		__field(u32, unit)
		__field(u32, units)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->node = node;
		__entry->block = block;
		__entry->copied = copied;
		__entry->unit = unit;
		__entry->units = units;
	),
	TP_printk("req=%llu node=%llu block=%llu units=%u+%u copied=%llu", __entry->id,
		  __entry->node, __entry->block, __entry->unit, __entry->units, __entry->copied)
);

TRACE_EVENT(wfs_store,
	TP_PROTO(u64 node, u64 block, const char *what, int status),
	TP_ARGS(node, block, what, status),
	TP_STRUCT__entry(
		__field(u64, node)
		__field(u64, block)
		__field(int, status)
		__array(char, what, 8)
	),
	TP_fast_assign(
		__entry->node = node;
		__entry->block = block;
		__entry->status = status;
		strscpy(__entry->what, what, 8);
	),
	TP_printk("node=%llu block=%llu %s status=%d", __entry->node, __entry->block,
		  __entry->what, __entry->status)
);

TRACE_EVENT(wfs_hit,
	TP_PROTO(u64 node, u64 block, u32 unit, u32 units, int status),
	TP_ARGS(node, block, unit, units, status),
	TP_STRUCT__entry(
		__field(u64, node)
		__field(u64, block)
		__field(u32, unit)
		__field(u32, units)
		__field(int, status)
	),
	TP_fast_assign(
		__entry->node = node;
		__entry->block = block;
		__entry->unit = unit;
		__entry->units = units;
		__entry->status = status;
	),
	TP_printk("node=%llu block=%llu units=%u+%u status=%d", __entry->node, __entry->block,
		  __entry->unit, __entry->units, __entry->status)
);

TRACE_EVENT(wfs_evict,
	TP_PROTO(u64 node, u64 block, int status),
	TP_ARGS(node, block, status),
	TP_STRUCT__entry(
		__field(u64, node)
		__field(u64, block)
		__field(int, status)
	),
	TP_fast_assign(
		__entry->node = node;
		__entry->block = block;
		__entry->status = status;
	),
	TP_printk("node=%llu block=%llu status=%d", __entry->node, __entry->block,
		  __entry->status)
);

TRACE_EVENT(wfs_session,
	TP_PROTO(u64 gen, int pid, const char *what),
	TP_ARGS(gen, pid, what),
	TP_STRUCT__entry(
		__field(u64, gen)
		__field(int, pid)
		__array(char, what, 16)
	),
	TP_fast_assign(
		__entry->gen = gen;
		__entry->pid = pid;
		strscpy(__entry->what, what, 16);
	),
	TP_printk("session=%llu pid=%d %s", __entry->gen, __entry->pid, __entry->what)
);

#endif /* _WFS_TRACE_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
