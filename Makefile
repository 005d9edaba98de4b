# SPDX-License-Identifier: MIT
#
# wfs: module, helper, tests. `make help` lists the targets.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory

build	:= $(CURDIR)/build
K	?= 6.12
prefix	?= /usr/local
jobs	:= $(shell nproc)

# What is said here on the command line means nothing to the makes of kernel and programs,
# whose variables have some of the same names.
MAKEOVERRIDES :=

# DEBUG=1 means the debug kernel, wherever a kernel can be named.
ifneq ($(DEBUG),)
K := debug
endif

.PHONY: help
help:
	@echo 'make demo         load a real model through wfs in a VM'
	@echo 'make check        run the tests in VMs [T=pattern] [K=6.1|6.12] [DEBUG=1]'
	@echo 'make check-all    every group on every kernel, the debug kernel included'
	@echo 'make bench        compare with other ways of reading [K=6.1|6.12] [ONLY=pattern,...]'
	@echo 'make fuzz         fuzz the parsers [T=target] [SECONDS=600]'
	@echo 'make lint         check the sources; make format: lay them out'
	@echo 'make vm           a shell in a VM [K=...]; make reload: swap module and daemon in it'
	@echo 'make modules      the module for one kernel [K=6.1|6.12|debug]'
	@echo 'make helper       wfsd, wfs and mount.wfs'
	@echo 'make tests        test programs'
	@echo 'make install      on this host [DESTDIR=] [prefix=/usr/local] [KREL=$$(uname -r)]'
	@echo 'make install-dkms the sources of the module for dkms'
	@echo 'make clean        remove build/ (downloads stay in the cache directory)'

# ---- what is built ---------------------------------------------------------

.PHONY: all deps modules helper tests unit
all: helper modules

deps:
	@vm/deps

# The sources are linked into one directory per kernel, so that builds for
# several kernels stand side by side. EXTRA reaches Kbuild (W=1, C=2, ...).
kdir	= $(build)/kmod-$(K)
headers	= "$$(vm/kernel $(K))/build"
kbuild	= $(MAKE) -C $(headers) M=$(kdir) CONFIG_DEBUG_INFO_BTF_MODULES= $(EXTRA)

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

# Fuzz targets; what they find is kept in build/fuzz/.
.PHONY: fuzz fuzz-targets
SECONDS ?= 600
fuzz-targets:
	+@$(MAKE) -C helper/fuzz O=$(build)/fuzz

fuzz: deps
	+@$(MAKE) -s -j$(jobs) fuzz-targets
	@helper/fuzz/run -s $(SECONDS) $(T)

# ---- demo ------------------------------------------------------------------

.PHONY: demo
demo: deps
	+@$(MAKE) -s helper modules K=6.12
	@vm/demo

# ---- tests -----------------------------------------------------------------

.PHONY: check check-all built vm reload
# K and DEBUG choose one kernel; without them all that the files ask for. The module for
# the debug kernel is made by tests/run, beside the tests on the others.
kernels	= $(if $(DEBUG),debug,$(if $(filter command line environment,$(origin K)),$(K)))
build-kernels = $(filter-out debug,$(or $(kernels),6.1 6.12))

built: helper tests unit fuzz-targets
	+@for k in $(build-kernels); do \
		$(MAKE) -s modules K=$$k || exit 1; \
	done

check: deps
	@echo 'building module, programs and tests' >&2
	+@$(MAKE) -s built $(if $(kernels),K=$(kernels))
	@tests/run $(if $(kernels),-k "$(kernels)") $(if $(T),-t '$(T)')

check-all: deps
	+@$(MAKE) -s built
	@status=0; tests/run -a $(if $(T),-t '$(T)') || status=$$?; \
	tests/run -T ioctl $(if $(T),-t '$(T)') || status=$$?; \
	exit $$status

# ---- benchmark ---------------------------------------------------------------

.PHONY: bench
bench: deps
	+@$(MAKE) -s helper modules tests K=$(K)
	@tests/bench/run -k $(K) $(if $(ONLY),-o '$(ONLY)') $(BENCH_FLAGS)

# A shell in a VM, this tree installed in it.
vm: deps
	+@$(MAKE) -s helper modules K=$(K)
	@vm/run -k $(K) -I

# Into the VM that `make vm` runs elsewhere.
reload:
	+@kernel=$$(vm/reload --kernel) && $(MAKE) -s helper modules K=$$kernel && vm/reload

# ---- sources -----------------------------------------------------------------

.PHONY: lint format
lint: deps
	@.ci/lint

format:
	@.ci/lint format

# ---- install ---------------------------------------------------------------

.PHONY: install install-programs install-module install-dkms
sbindir		= $(prefix)/sbin
bindir		= $(prefix)/bin
mandir		= $(prefix)/share/man
unitdir		= $(prefix)/lib/systemd/system
sysusersdir	= $(prefix)/lib/sysusers.d
tmpfilesdir	= $(prefix)/lib/tmpfiles.d
completiondir	= $(prefix)/share/bash-completion/completions
version		= $(shell sed -n 's/.*WFS_VERSION "\(.*\)"/\1/p' helper/version.h)
INSTALL		= install -D -m 644

# For the kernel that runs, or KREL. Its headers must be there.
KREL	?= $(shell uname -r)
install: helper install-programs install-module
	@[ -n "$(DESTDIR)" ] || ! command -v systemd-sysusers >/dev/null || { \
		systemd-sysusers $(sysusersdir)/wfs.conf && \
		systemd-tmpfiles --create $(tmpfilesdir)/wfs.conf; }
	@[ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ] || systemctl daemon-reload

# Programs, man pages, unit, its user and completion; mount(8) looks for helpers in /sbin only.
install-programs:
	@install -D -m 755 -t $(DESTDIR)$(sbindir) $(build)/helper/wfsd
	@install -D -m 755 -t $(DESTDIR)$(bindir) $(build)/helper/wfs
	@install -D -m 755 -t $(DESTDIR)/usr/sbin $(build)/helper/mount.wfs
	@for page in Documentation/man/*.[1-8]; do \
		$(INSTALL) -t $(DESTDIR)$(mandir)/man$${page##*.} $$page || exit; \
	done
	@$(INSTALL) packaging/wfsd.service $(DESTDIR)$(unitdir)/wfsd.service
	@sed -i 's|/usr/sbin/wfsd|$(sbindir)/wfsd|' $(DESTDIR)$(unitdir)/wfsd.service
	@$(INSTALL) packaging/wfs.sysusers $(DESTDIR)$(sysusersdir)/wfs.conf
	@$(INSTALL) packaging/wfs.tmpfiles $(DESTDIR)$(tmpfilesdir)/wfs.conf
	@for f in wfs wfsd; do \
		[ ! -e packaging/bash-completion/$$f ] || \
		$(INSTALL) packaging/bash-completion/$$f $(DESTDIR)$(completiondir)/$$f || exit; \
	done
	@if [ -e packaging/wfsd.conf ] && [ ! -e $(DESTDIR)/etc/wfs/wfsd.conf ]; then \
		$(INSTALL) -m 600 packaging/wfsd.conf $(DESTDIR)/etc/wfs/wfsd.conf; \
	fi

# The module is signed or not as the kernel's own rules for modules from outside want it.
install-module:
	+@$(MAKE) modules kdir=$(build)/kmod-host-$(KREL) headers=/lib/modules/$(KREL)/build
	@$(INSTALL) -t $(DESTDIR)/lib/modules/$(KREL)/extra $(build)/kmod-host-$(KREL)/kmod/wfs.ko
	@[ -n "$(DESTDIR)" ] || depmod $(KREL)

# The sources where dkms(8) looks for them: dkms install wfs/VERSION builds the module,
# again for each kernel that comes.
install-dkms:
	@for file in dkms.conf Kbuild kmod/* uapi/*; do \
		$(INSTALL) $$file $(DESTDIR)/usr/src/wfs-$(version)/$$file || exit; \
	done
	@sed -i 's/^PACKAGE_VERSION=.*/PACKAGE_VERSION="$(version)"/' \
		$(DESTDIR)/usr/src/wfs-$(version)/dkms.conf

# ---- clean -----------------------------------------------------------------

.PHONY: clean
clean:
	rm -rf $(build)
