# SPDX-License-Identifier: MIT
#
# wfs: module, helper, tests. `make help` lists the targets.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory

build	:= $(CURDIR)/build
K	?= 6.12
prefix	?= /usr/local
jobs	:= $(shell nproc)

# DEBUG=1 means the debug kernel, wherever a kernel can be named.
ifneq ($(DEBUG),)
K := debug
endif

.PHONY: help
help:
	@echo 'make demo         load a real model through wfs in a VM'
	@echo 'make check        run the tests in VMs [T=pattern] [K=6.1|6.12] [DEBUG=1]'
	@echo 'make check-all    every group on every kernel, the debug kernel included'
	@echo 'make lint         check the sources; make format: lay them out'
	@echo 'make vm           a shell in a VM [K=...]; make reload: swap module and daemon in it'
	@echo 'make modules      the module for one kernel [K=6.1|6.12|debug]'
	@echo 'make helper       wfsd, wfs and mount.wfs'
	@echo 'make tests        test programs'
	@echo 'make install      on this host [DESTDIR=] [prefix=/usr/local] [KREL=$$(uname -r)]'
	@echo 'make clean        remove build/ (downloads stay in the cache directory)'

# ---- what is built ---------------------------------------------------------

.PHONY: all deps modules helper tests unit
all: helper modules

deps:
	@vm/deps

# The sources are linked into one directory per kernel, so that builds for
# several kernels stand side by side. EXTRA reaches Kbuild (W=1, C=2, ...).
kdir	= $(build)/kmod-$(K)
kbuild	= $(MAKE) -C "$$(vm/kernel $(K))/build" M=$(kdir) CONFIG_DEBUG_INFO_BTF_MODULES= $(EXTRA)

modules:
	@mkdir -p $(kdir)/kmod
	@cp -rsfT $(CURDIR)/kmod $(kdir)/kmod
	@ln -sfnT $(CURDIR)/uapi $(kdir)/uapi
	@ln -sfnT $(CURDIR)/Kbuild $(kdir)/Kbuild
	@find $(kdir) -xtype l -delete
	+@$(kbuild) modules

helper:
	+@$(MAKE) -C helper O=$(build)/helper

tests:
	@if [ -e tests/Makefile ]; then $(MAKE) -C tests O=$(build)/tests; fi

# Unit tests of the helper run on the host, under the address and undefined
# behaviour sanitizers.
unit:
	+@$(MAKE) -C helper O=$(build)/helper-san SANITIZE=address,undefined unit

# ---- tests -----------------------------------------------------------------

.PHONY: check check-all built vm
# K and DEBUG choose one kernel; without them all that the files ask for. The module for
# the debug kernel is made by tests/run, beside the tests on the others.
kernels	= $(if $(DEBUG),debug,$(if $(filter command line environment,$(origin K)),$(K)))
build-kernels = $(filter-out debug,$(or $(kernels),6.1 6.12))

built: helper tests unit
	+@for k in $(build-kernels); do \
		$(MAKE) -s modules K=$$k || exit 1; \
	done

check: deps
	+@$(MAKE) -s built
	@tests/run $(if $(kernels),-k "$(kernels)") $(if $(T),-t '$(T)')

check-all: deps
	+@$(MAKE) -s built
	@tests/run -a $(if $(T),-t '$(T)')

# A shell in a VM, this tree installed in it.
vm: deps
	+@$(MAKE) -s helper modules
	@vm/run -k $(K) -I

# ---- install ---------------------------------------------------------------

.PHONY: install install-programs

# Programs, man pages and unit; mount(8) looks for helpers in /sbin only.
install-programs:
	@install -D -m 755 -t $(DESTDIR)$(prefix)/sbin $(build)/helper/wfsd
	@for f in wfs mount.wfs; do \
		[ ! -e $(build)/helper/$$f ] || case $$f in \
		wfs)	   install -D -m 755 -t $(DESTDIR)$(prefix)/bin $(build)/helper/$$f ;; \
		mount.wfs) install -D -m 755 -t $(DESTDIR)/usr/sbin $(build)/helper/$$f ;; \
		esac; \
	done

# ---- clean -----------------------------------------------------------------

.PHONY: clean
clean:
	rm -rf $(build)
