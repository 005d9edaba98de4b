# SPDX-License-Identifier: MIT
#
# How a source becomes an object under $(O)/obj. Expects SRC and O.

PKG_CONFIG ?= pkg-config
PACKAGES := libcurl liburing jansson expat libcrypto libxxhash \
	libnl-3.0 libnl-genl-3.0 libmicrohttpd libsystemd

# SANITIZE=address,undefined or SANITIZE=thread; ASAN=1 and TSAN=1 are short for them.
ifeq ($(ASAN),1)
SANITIZE := address,undefined
endif
ifeq ($(TSAN),1)
SANITIZE := thread
endif
ifneq ($(SANITIZE),)
SANITIZER := -fsanitize=$(SANITIZE) -fno-omit-frame-pointer
ifneq ($(findstring undefined,$(SANITIZE)),)
SANITIZER += -fno-sanitize-recover=undefined
endif
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
FLAGS := $(CC) $(CFLAGS) $(CPPFLAGS) $(SANITIZER)

$(O)/obj/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(FLAGS)' | cmp -s - $@ || printf '%s\n' '$(FLAGS)' >$@

$(O)/obj/%.o: $(SRC)/%.c $(O)/obj/flags
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(SANITIZER) -MMD -MP -c -o $@ $<

.PHONY: FORCE
FORCE:

-include $(wildcard $(O)/obj/*.d $(O)/obj/*/*.d)
