// SPDX-License-Identifier: GPL-2.0-only
/*
 * blockmap_test: KUnit tests of the block map, alone.
 *
 * Part of the module where the kernel has KUnit; they run when it is loaded, their
 * results are in /sys/kernel/debug/kunit/wfs-blockmap/results.
 */
#include <kunit/test.h>
#include <linux/slab.h>

#include "../uapi/wfs.h"
#include "blockmap.h"

#define MIB 1048576ULL

static DEFINE_SPINLOCK(owner);

static struct wfs_window *make_window(struct kunit *test, const struct wfs_geometry *geo, u32 w)
{
	struct wfs_window *win = wfs_window_alloc(geo, w, &owner, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, win);
	return win;
}

static void test_geometry(struct kunit *test)
{
	/* 4 MiB blocks: two windows and a bit; the last block has 5 units, one short. */
	struct wfs_geometry geo = {
		.size = 1024 * MIB + 4 * WFS_UNIT_SIZE + 7,
		.block_shift = 22,
	};

	KUNIT_EXPECT_EQ(test, wfs_geo_blocks(&geo), 257ULL);
	KUNIT_EXPECT_EQ(test, wfs_geo_window_of(&geo, 127), 0U);
	KUNIT_EXPECT_EQ(test, wfs_geo_window_of(&geo, 128), 1U);
	KUNIT_EXPECT_EQ(test, wfs_geo_window_first(&geo, 2), 256ULL);
	KUNIT_EXPECT_EQ(test, wfs_geo_window_blocks(&geo, 0), 128U);
	KUNIT_EXPECT_EQ(test, wfs_geo_window_blocks(&geo, 2), 1U);
	KUNIT_EXPECT_EQ(test, wfs_geo_window_blocks(&geo, 3), 0U);
	KUNIT_EXPECT_EQ(test, wfs_geo_block_units(&geo, 0), 64U);
	KUNIT_EXPECT_EQ(test, wfs_geo_block_units(&geo, 256), 5U);
	KUNIT_EXPECT_EQ(test, wfs_geo_block_bytes(&geo, 256), 4ULL * WFS_UNIT_SIZE + 7);
}

static void test_block_sizes(struct kunit *test)
{
	u32 shift;

	/* A full window holds the same number of units whatever the block size. */
	for (shift = ilog2(WFS_BLOCK_MIN); shift <= ilog2(WFS_BLOCK_MAX); shift++) {
		struct wfs_geometry geo = { .size = 1ULL << 41, .block_shift = shift };
		u32 blocks = wfs_geo_window_blocks(&geo, 7);
		u32 units = wfs_geo_block_units(&geo, wfs_geo_window_first(&geo, 7));

		KUNIT_EXPECT_EQ(test, blocks * units, WFS_WINDOW_UNITS);
		KUNIT_EXPECT_EQ(test, wfs_geo_window_of(&geo, wfs_geo_blocks(&geo) - 1),
				(1U << (41 - WFS_WINDOW_SHIFT)) - 1);
	}
}

static void test_pins(struct kunit *test)
{
	struct wfs_geometry geo = { .size = 64 * MIB, .block_shift = 22 };
	struct wfs_window *win = make_window(test, &geo, 0);

	KUNIT_EXPECT_EQ(test, wfs_block_state(win, 3), WFS_BLOCK_UNKNOWN);
	KUNIT_EXPECT_FALSE(test, wfs_block_pin(win, 3));
	wfs_block_set(win, 3, WFS_BLOCK_CACHED);
	KUNIT_EXPECT_TRUE(test, wfs_block_pin(win, 3));
	KUNIT_EXPECT_TRUE(test, wfs_block_pin(win, 3));
	/* Granted at zero pins only; then nobody pins it any more. */
	KUNIT_EXPECT_FALSE(test, wfs_block_try_evict(win, 3));
	wfs_block_unpin(win, 3);
	KUNIT_EXPECT_FALSE(test, wfs_block_try_evict(win, 3));
	wfs_block_unpin(win, 3);
	KUNIT_EXPECT_TRUE(test, wfs_block_try_evict(win, 3));
	KUNIT_EXPECT_EQ(test, wfs_block_state(win, 3), WFS_BLOCK_EVICTING);
	KUNIT_EXPECT_FALSE(test, wfs_block_pin(win, 3));
	KUNIT_EXPECT_FALSE(test, wfs_block_try_evict(win, 3));
	/* Neighbours are untouched. */
	KUNIT_EXPECT_EQ(test, wfs_block_state(win, 2), WFS_BLOCK_UNKNOWN);
	KUNIT_EXPECT_EQ(test, wfs_block_state(win, 4), WFS_BLOCK_UNKNOWN);
	wfs_window_free(win);
}

static void test_pins_outlive_states(struct kunit *test)
{
	struct wfs_geometry geo = { .size = 8 * MIB, .block_shift = 22 };
	struct wfs_window *win = make_window(test, &geo, 0);

	wfs_block_set(win, 0, WFS_BLOCK_CACHED);
	KUNIT_EXPECT_TRUE(test, wfs_block_pin(win, 0));
	/* Found bad while it is being read: the pin drops later, and only once. */
	wfs_block_set_bad(win, 0);
	KUNIT_EXPECT_EQ(test, wfs_block_state(win, 0), WFS_BLOCK_ABSENT);
	wfs_block_set(win, 0, WFS_BLOCK_CACHED);
	KUNIT_EXPECT_FALSE(test, wfs_block_try_evict(win, 0));
	/* Nor may it be evicted where it only counts as absent. */
	wfs_block_set_bad(win, 0);
	KUNIT_EXPECT_FALSE(test, wfs_block_try_evict(win, 0));
	wfs_block_unpin(win, 0);
	KUNIT_EXPECT_TRUE(test, wfs_block_try_evict(win, 0));
	wfs_window_free(win);
}

static void test_bad(struct kunit *test)
{
	struct wfs_geometry geo = { .size = 8 * MIB, .block_shift = 22 };
	struct wfs_window *win = make_window(test, &geo, 0);
	const struct wfs_epoch another = { .helper = 1, .file = 1 };

	KUNIT_EXPECT_FALSE(test, wfs_block_test_clear_bad(win, 1));
	wfs_block_set(win, 1, WFS_BLOCK_CACHED);
	wfs_block_set_bad(win, 1);
	/* It survives the state's way to filling, and is told once. */
	wfs_block_set(win, 1, WFS_BLOCK_FILLING);
	KUNIT_EXPECT_TRUE(test, wfs_block_test_clear_bad(win, 1));
	KUNIT_EXPECT_FALSE(test, wfs_block_test_clear_bad(win, 1));
	/* It is about one copy: neither about the next one ... */
	wfs_block_set_bad(win, 1);
	wfs_block_set(win, 1, WFS_BLOCK_CACHED);
	KUNIT_EXPECT_FALSE(test, wfs_block_is_bad(win, 1));
	/* ... nor about what another cache file holds. */
	wfs_block_set_bad(win, 1);
	wfs_window_catch_up(win, &another);
	KUNIT_EXPECT_FALSE(test, wfs_block_is_bad(win, 1));
	wfs_window_free(win);
}

static void test_sums(struct kunit *test)
{
	struct wfs_geometry geo = { .size = 3 * MIB + 1, .block_shift = 20 };
	struct wfs_window *win = make_window(test, &geo, 0);
	u64 sums[16], *room;
	int i;

	KUNIT_ASSERT_EQ(test, win->blocks, 4U);
	KUNIT_ASSERT_EQ(test, win->nsums, 49U);
	for (i = 0; i < 16; i++)
		sums[i] = 1000 + i;
	wfs_block_set(win, 2, WFS_BLOCK_CACHED);
	/* Without room they are not kept, and will be asked for. */
	wfs_block_store_sums(win, 2, sums, 16);
	KUNIT_EXPECT_FALSE(test, wfs_block_has_sums(win, 2));

	room = kvmalloc_array(win->nsums, sizeof(u64), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, room);
	spin_lock(&owner);
	KUNIT_EXPECT_NULL(test, wfs_window_give_sums(win, room));
	wfs_block_store_sums(win, 2, sums, 16);
	KUNIT_EXPECT_TRUE(test, wfs_block_has_sums(win, 2));
	KUNIT_EXPECT_FALSE(test, wfs_block_has_sums(win, 1));
	KUNIT_EXPECT_EQ(test, wfs_block_sums(win, 2)[0], 1000ULL);
	KUNIT_EXPECT_EQ(test, wfs_block_sums(win, 2)[15], 1015ULL);
	/* The last block has one unit: there is room for that one only. */
	wfs_block_set(win, 3, WFS_BLOCK_CACHED);
	wfs_block_store_sums(win, 3, sums, 1);
	KUNIT_EXPECT_EQ(test, wfs_block_sums(win, 3)[0], 1000ULL);
	/* They go with the state, and with the window's. */
	wfs_block_set(win, 2, WFS_BLOCK_ABSENT);
	KUNIT_EXPECT_FALSE(test, wfs_block_has_sums(win, 2));
	wfs_window_drop_sums(win);
	KUNIT_EXPECT_FALSE(test, wfs_block_has_sums(win, 3));
	spin_unlock(&owner);
	KUNIT_EXPECT_EQ(test, wfs_block_state(win, 3), WFS_BLOCK_CACHED);
	wfs_window_free(win);
}

static void test_forget(struct kunit *test)
{
	struct wfs_geometry geo = { .size = 64 * MIB, .block_shift = 22 };
	static const enum wfs_block_state after[][3] = {
		/* before, after a new session, after another cache file */
		{ WFS_BLOCK_UNKNOWN, WFS_BLOCK_UNKNOWN, WFS_BLOCK_UNKNOWN },
		{ WFS_BLOCK_ABSENT, WFS_BLOCK_ABSENT, WFS_BLOCK_UNKNOWN },
		{ WFS_BLOCK_FILLING, WFS_BLOCK_FILLING, WFS_BLOCK_FILLING },
		{ WFS_BLOCK_HELD, WFS_BLOCK_UNKNOWN, WFS_BLOCK_UNKNOWN },
		{ WFS_BLOCK_CACHED, WFS_BLOCK_CACHED, WFS_BLOCK_UNKNOWN },
		{ WFS_BLOCK_EVICTING, WFS_BLOCK_UNKNOWN, WFS_BLOCK_UNKNOWN },
	};
	struct wfs_window *win = make_window(test, &geo, 0);
	struct wfs_epoch now = { 0 };
	int all, i;

	for (all = 0; all < 2; all++) {
		for (i = 0; i < ARRAY_SIZE(after); i++)
			wfs_block_set(win, i, after[i][0]);
		win->asked = true;
		now.helper++;
		now.file += all;
		wfs_window_catch_up(win, &now);
		for (i = 0; i < ARRAY_SIZE(after); i++)
			KUNIT_EXPECT_EQ(test, wfs_block_state(win, i), after[i][1 + all]);
		KUNIT_EXPECT_EQ(test, win->stale, !!all);
		/* Once: what comes to be known after that stays. */
		wfs_block_set(win, 0, WFS_BLOCK_HELD);
		wfs_window_catch_up(win, &now);
		KUNIT_EXPECT_EQ(test, wfs_block_state(win, 0), WFS_BLOCK_HELD);
	}
	/* Several that nobody looked at: another file among them counts. */
	wfs_block_set(win, 0, WFS_BLOCK_CACHED);
	now.helper += 3;
	now.file++;
	wfs_window_catch_up(win, &now);
	KUNIT_EXPECT_EQ(test, wfs_block_state(win, 0), WFS_BLOCK_UNKNOWN);
	wfs_window_free(win);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(test_geometry), KUNIT_CASE(test_block_sizes),
	KUNIT_CASE(test_pins),	   KUNIT_CASE(test_pins_outlive_states),
	KUNIT_CASE(test_bad),	   KUNIT_CASE(test_sums),
	KUNIT_CASE(test_forget),   {}
};

static struct kunit_suite suite = {
	.name = "wfs-blockmap",
	.test_cases = cases,
};

kunit_test_suite(suite);
