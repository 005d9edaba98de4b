/* SPDX-License-Identifier: MIT */
/* fuzz: random numbers and mutations, and what uses a mount and the netlink family at random. */
#ifndef WFS_TESTS_FUZZ_H
#define WFS_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_NAMES 8 /* files f0 f1 ..., d/f0 d/f1 ..., links l0 l1 ... */

enum fuzz_kind { FUZZ_COMMANDS, FUZZ_REPLIES, FUZZ_NETLINK, FUZZ_FILES, FUZZ_KINDS };

/* Counters are shared with the children of whoever called this. */
void fuzz_init(void);
void fuzz_count(enum fuzz_kind kind);
void fuzz_report(void);

/* The sequence of this process. */
void fuzz_seed(uint64_t seed);
uint64_t fuzz_next(void);
uint64_t fuzz_below(uint64_t limit);
bool fuzz_one_in(uint64_t n);
/* Something near value, or an edge. */
uint64_t fuzz_value(uint64_t value);
void fuzz_bytes(void *to, size_t len);
/* Changes some of the bytes, words among them. */
void fuzz_mutate(void *at, size_t len);
void fuzz_pause(unsigned int ms);

bool fuzz_mounted(const char *dir);
/* Uses the files below dir, so many times. */
void fuzz_use(const char *dir, uint64_t times);
/* Messages to the netlink family, for ever. */
void fuzz_netlink(void);

#endif /* WFS_TESTS_FUZZ_H */
