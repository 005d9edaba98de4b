/* SPDX-License-Identifier: MIT */
/*
 * counters: what the daemon did, for `wfs stat` and the metrics address.
 *
 * Global and atomic; written from any thread, read without a lock.
 */
#ifndef WFS_COUNTERS_H
#define WFS_COUNTERS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, kind, what it counts); kind as Prometheus says it. */
#define COUNTERS(X)                                                                             \
	X(origin_fetches, counter, "Ranged reads asked of origins")                             \
	X(origin_bytes, counter, "Object bytes that came from origins")                         \
	X(asked_bytes, counter, "Object bytes that readers and fetches asked the helper for")   \
	X(beyond_bytes, counter, "Object bytes fetched beyond what was asked")                  \
	X(served_origin_requests, counter, "Requests answered from the origin")                 \
	X(served_origin_bytes, counter, "Bytes of requests answered from the origin")           \
	X(served_held_requests, counter, "Requests answered from a buffer")                     \
	X(served_held_bytes, counter, "Bytes of requests answered from a buffer")               \
	X(served_nvme_requests, counter, "Requests answered by the helper from the cache file") \
	X(served_nvme_bytes, counter,                                                           \
	  "Bytes of requests answered by the helper from the cache file")                       \
	X(served_peer_requests, counter, "Requests answered from a peer")                       \
	X(served_peer_bytes, counter, "Bytes of requests answered from a peer")                 \
	X(prefetch_bytes, counter, "Bytes of requests that nobody waited for")                  \
	X(plans, counter, "Streams of a learned order that were followed")                      \
	X(plans_dropped, counter, "Of these, streams that readers departed from")               \
	X(plan_blocks, counter, "Blocks asked for ahead by a learned order or the next shard")  \
	X(plan_fetched_blocks, counter, "Of these, blocks that have come")                      \
	X(plan_used_blocks, counter, "Of these, blocks that readers came to")                   \
	X(plan_wasted_blocks, counter, "Of these, blocks that no reader came to")               \
	X(plan_misses, counter, "Blocks needed that the order followed did not expect")         \
	X(next_shards, counter, "Shards begun since the one before was read in sequence")       \
	X(order_blocks, counter, "Blocks whose turn in an order was recorded")                  \
	X(order_profiles, counter, "Orders recorded or loaded")                                 \
	X(failed_requests, counter, "Requests that ended with an error")                        \
	X(duplicate_fetches, counter, "Blocks fetched again while the cache had them")          \
	X(blocks_stored, counter, "Blocks durable in the cache")                                \
	X(blocks_dropped, counter, "Blocks delivered but not stored")                           \
	X(blocks_evicted, counter, "Blocks evicted from the cache")                             \
	X(blocks_evicted_young, counter, "Blocks evicted within 60 s of being stored")          \
	X(blocks_corrupt, counter, "Cached blocks that failed their check")                     \
	X(digests_verified, counter, "Objects in the cache found to have the right digest")     \
	X(digests_wrong, counter, "Objects in the cache found to have another digest")          \
	X(stored_bytes, counter, "Bytes written to the cache")                                  \
	X(store_errors, counter, "Writes to the cache that failed")                             \
	X(retries, counter, "Origin requests made again")                                       \
	X(hedges_sent, counter, "Second requests for the same bytes")                           \
	X(hedges_won, counter, "Second requests that answered first")                           \
	X(hedges_capped, counter, "Late reads that no second request was made for: the cap")    \
	X(hedge_lost_bytes, counter, "Bytes that came a second time")                           \
	X(mirror_failovers, counter, "Reads taken up at another mirror after an error")         \
	X(mirror_names, counter, "Names told by a mirror, the source being away")               \
	X(mirrors_refused, counter, "Times that an object was not joined with its mirror")      \
	X(stalls, counter, "Transfers given up because no byte came")                           \
	X(hidden_keys, counter, "Keys that cannot be a path")                                   \
	X(helper_sessions, counter, "Sessions with the kernel")                                 \
	X(event_followers, gauge, "Connections that follow what the daemon finds")              \
	X(buffer_total_bytes, gauge, "Buffer memory")                                           \
	X(buffer_used_bytes, gauge, "Buffer memory in use")                                     \
	X(buffer_waits, counter, "Times that a block waited for buffer memory")                 \
	X(resident_bytes, gauge, "Memory of the daemon, buffers included")                      \
	X(held_blocks, gauge, "Blocks in buffers, delivered and not yet settled")               \
	X(active_fetches, gauge, "Ranged reads under way")                                      \
	X(queued_blocks, gauge, "Blocks waiting to be fetched")                                 \
	X(index_bytes, gauge, "Size of the cache index")                                        \
	X(cache_capacity_bytes, gauge, "Most bytes that the cache may hold")                    \
	X(cache_used_bytes, gauge, "Bytes that the cache holds")                                \
	X(cache_files, gauge, "Object versions in the cache")

/* Times in seconds spent waiting, by stage. */
#define COUNTER_WAITS(X)                                    \
	X(queue, "Time from request to the origin request") \
	X(origin, "Time of origin requests")                \
	X(verify, "Time to sum a run of units")             \
	X(deliver, "Time to hand a run of units on")        \
	X(store, "Time from the last byte to durability")

#define X(name, kind, what) COUNTER_##name,
enum counter { COUNTERS(X) COUNTER_MAX };
#undef X

#define X(name, what) COUNTER_WAIT_##name,
enum counter_wait { COUNTER_WAITS(X) COUNTER_WAIT_MAX };
#undef X

/* Upper bounds: 100 us * 4^i, the last one unbounded. */
#define COUNTER_BUCKETS 10

struct counter_histogram {
	_Atomic uint64_t bucket[COUNTER_BUCKETS];
	_Atomic uint64_t sum_ns;
};

extern _Atomic uint64_t counters[COUNTER_MAX];
extern struct counter_histogram counter_waits[COUNTER_WAIT_MAX];

#define counter_add(name, n) \
	atomic_fetch_add_explicit(&counters[COUNTER_##name], (uint64_t)(n), memory_order_relaxed)
#define counter_sub(name, n) \
	atomic_fetch_sub_explicit(&counters[COUNTER_##name], (uint64_t)(n), memory_order_relaxed)
#define counter_set(name, n) \
	atomic_store_explicit(&counters[COUNTER_##name], (uint64_t)(n), memory_order_relaxed)
#define counter_get(name) atomic_load_explicit(&counters[COUNTER_##name], memory_order_relaxed)

/* Sets what is looked up when it is asked for: resident_bytes. Any thread. */
void counters_measure(void);
/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t counter_now(void);
void counter_waited(enum counter_wait wait, uint64_t ns);

const char *counter_name(enum counter counter);
const char *counter_kind(enum counter counter);
const char *counter_help(enum counter counter);
const char *counter_wait_name(enum counter_wait wait);
const char *counter_wait_help(enum counter_wait wait);
/* Upper bound of a bucket in seconds; the last one is infinite. */
double counter_bound(unsigned int bucket);

#endif /* WFS_COUNTERS_H */
