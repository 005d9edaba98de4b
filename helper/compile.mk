# SPDX-License-Identifier: MIT
#
# How a source becomes an object under $(O)/obj. Expects SRC and O.

PKG_CONFIG ?= pkg-config
PACKAGES := libcurl liburing jansson expat libcrypto libxxhash inih \
	libnl-3.0 libnl-genl-3.0 libmicrohttpd libsystemd

ifeq ($(ASAN),1)
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
ifeq ($(TSAN),1)
SANITIZE := -fsanitize=thread -fno-omit-frame-pointer
endif

CFLAGS ?= -O2 -g
CFLAGS += -std=gnu17 -Wall -Wextra -Wshadow -Wmissing-prototypes
CPPFLAGS += -D_GNU_SOURCE -I$(SRC) -I$(SRC)/../uapi $(PACKAGE_CFLAGS)
LIBS += $(PACKAGE_LIBS) -llmdb -lpthread

ifeq ($(filter clean,$(MAKECMDGOALS)),)
PACKAGE_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES))
PACKAGE_LIBS := $(shell $(PKG_CONFIG) --libs $(PACKAGES))
ifeq ($(PACKAGE_LIBS),)
$(error a library is missing, see vm/deps --helper: $(PACKAGES))
endif
endif

# Objects built with other flags are not reused.
FLAGS := $(CC) $(CFLAGS) $(CPPFLAGS) $(SANITIZE)

$(O)/obj/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(FLAGS)' | cmp -s - $@ || printf '%s\n' '$(FLAGS)' >$@

$(O)/obj/%.o: $(SRC)/%.c $(O)/obj/flags
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(SANITIZE) -MMD -MP -c -o $@ $<

.PHONY: FORCE
FORCE:

-include $(wildcard $(O)/obj/*.d)
