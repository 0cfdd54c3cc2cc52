# `make run` and `make test` set up what they need in .venv and build/.

PY := .venv/bin/python
STUBS := backend/_native.pyi backend/_chat.pyi
CLANG = $(shell command -v clang++ || command -v clang++-14)
CXX_FILES = $(sort $(shell find backend/native -name '*.cc' -o -name '*.h'))

.PHONY: help run fast test nightly journeys ci mutants test-gpu lint format native thread-safety translations attack event-logs
.PHONY: asan tsan clean distclean audit curated bundle deb appimage release release-check
.PHONY: macos-check wine-check wine-bundle

help:
	@echo "make run        set up and open the window (or chat in the terminal)"
	@echo "make test       set up and run all checks and tests; ARGS='-k name' for some tests"
	@echo "make nightly    run the tests that are too long for each change: whole products, kills and long use"
	@echo "make journeys   use the installed programs as a person does; ALL=1 for all; ARGS='-k name' for some"
	@echo "make fast       in a minute: check what changed since the last commit, or since BASE=commit"
	@echo "make ci         check the last commit as CI does it, in a fresh clone in a new folder"
	@echo "make mutants    change lines of FILES='backend/x.py app/y' one by one (N=20 SEED=1), and test"
	@echo "make test-gpu   the tests of devices on this machine's: make test-gpu DEVICE=Vulkan0"
	@echo "make lint       check style and types"
	@echo "make thread-safety check which mutex guards what in backend/native/live, with Clang"
	@echo "make format     format Python and C++"
	@echo "make translations bring app/text/translations up to date with the texts of the window"
	@echo "make native     build and install the native part after a change"
	@echo "make attack     damage, faults and kills for SECONDS=300; ARGS='--replay AREA:SEED' for one"
	@echo "make event-logs record the core's event logs again, after an intended change; ARGS='NAME' for one"
	@echo "make asan       run the tests of the native part with address and undefined sanitizers"
	@echo "make tsan       run them with the thread sanitizer"
	@echo "make bundle     make dist/outrider, a folder that runs without Python being installed"
	@echo "make deb, make appimage  make a package of it in dist; make release makes all, with sums"
	@echo "make audit      ask PyPI for known vulnerabilities of what a bundle ships"
	@echo "make curated    compare the list of models with the hub; ARGS=--write corrects it"
	@echo "make release-check try what is in dist in a bare Debian system"
	@echo "make macos-check compile the native part for macOS with zig"
	@echo "make wine-check build for Windows, and try it under wine; ARGS='--only native' for a part"
	@echo "make wine-bundle bundle for Windows under wine, and try archive and installer"
	@echo "make clean      remove what was built; make distclean also removes .venv"

run:
	@sh packaging/prepare.sh run
	@$(PY) packaging/launch.py

# All checks and tests run, whichever fails. The tests run in three processes, because many wait for a child;
# ARGS="-n 0" makes it one. A file stays in one process, so that its fixtures are made once.
XDIST = -n 3 --dist loadfile --no-loadscope-reorder

# They start thousands of programs, so bytecode is kept, whatever the environment says.
test: .dev
	@status=0; \
	$(MAKE) --no-print-directory lint || status=1; \
	QT_QPA_PLATFORM=offscreen PYTHONDONTWRITEBYTECODE= $(PY) -m pytest $(XDIST) $(ARGS) || status=1; \
	exit $$status

nightly: .dev
	@QT_QPA_PLATFORM=offscreen PYTHONDONTWRITEBYTECODE= $(PY) -m pytest $(XDIST) -m night $(ARGS)

# The minute counts a rebuild of the native part too.
fast:
	@began=$$(date +%s); $(MAKE) --no-print-directory .dev \
		&& QT_QPA_PLATFORM=offscreen $(PY) tests/fast.py --base $(or $(BASE),HEAD) --began $$began

# tests/journeys/__init__.py says what they are. What is known of a failure is in build/journeys/failures.
journeys:
	@python=$$(ls $(PY) 2>/dev/null || command -v python3); $$python tests/journeys $(if $(ALL),--all) $(ARGS)

ci:
	@python3 packaging/rehearse.py

mutants: .dev
	@test -n "$(FILES)$(VERDICTS)" || { echo "Name files or folders: make mutants FILES='backend/packs app/store'"; exit 2; }
	@$(PY) tests/mutants.py -n $(or $(N),20) --seed $(or $(SEED),1) $(VERDICTS:%=--verdicts %) $(ARGS) $(FILES)

# The device must be one of llama.cpp's build; docs/devices-shown.md has a set-up without a graphics card.
DEVICE_TESTS = live/test_device.py live/test_host_store.py live/test_hybrid.py backend/test_on_device.py

test-gpu: .dev
	@test -n "$(DEVICE)" || { echo "Name a device: make test-gpu DEVICE=Vulkan0"; exit 2; }
	@OUTRIDER_TEST_DEVICE=$(DEVICE) QT_QPA_PLATFORM=offscreen $(PY) -m pytest $(ARGS) \
		$(addprefix tests/,$(DEVICE_TESTS)) \
		tests/app/test_window_real.py::test_the_processor_computes_what_a_device_lacks

lint: .dev
	@status=0; \
	check() { name=$$1; echo "== $$name"; shift; "$$@" || { echo "== $$name failed"; status=1; }; }; \
	check "ruff check" $(PY) -m ruff check; \
	check "ruff format" $(PY) -m ruff format --check; \
	for stub in $(STUBS); do \
		check "$$stub" $(PY) -m nanobind.stubgen -q -m backend.$$(basename $$stub .pyi) -o $$stub; done; \
	check "mypy" $(PY) -m mypy; \
	check "clang-format" .venv/bin/clang-format --dry-run --Werror $(CXX_FILES); \
	if [ -n "$(CLANG)" ]; then check "thread safety" $(MAKE) --no-print-directory thread-safety; fi; \
	exit $$status

# Which mutex guards what in live (live/ggml/thread_safety.h).
thread-safety: .dev
	@if [ -z "$(CLANG)" ]; then echo "The check of locks needs clang++, which is not installed."; else \
	$(CLANG) -std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -Ibackend/native \
		-isystem $$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/include \
		$(filter-out %_windows.cc %_none.cc,$(wildcard backend/native/live/*/*.cc)); fi

format: .dev
	$(PY) -m ruff check --fix
	$(PY) -m ruff format
	.venv/bin/clang-format -i $(CXX_FILES)

# Then translate what is unfinished, in an editor or with pyside6-linguist.
translations: .dev
	.venv/bin/pyside6-lupdate $(shell find app -name '*.py' | sort) \
		backend/protocol/settings.py backend/text/english.py -ts app/text/translations/de.ts \
		-source-language en -target-language de -no-obsolete -locations none
	sed -i 's/^ *//' app/text/translations/de.ts

# What users are given; packaging/README.md explains it. Each makes its own environment in build/release.
bundle deb appimage:
	@python3 packaging/release.py $(if $(filter bundle,$@),,bundle) $@

release:
	@python3 packaging/release.py all

# Installs and uses both packages in a bare Debian (as root).
release-check:
	@sh packaging/linux/check.sh

# Nothing of it runs: there is no Mac here.
macos-check: .dev
	@sh packaging/macos/check.sh

# packaging/windows/wine/check.py says what it needs and where it keeps it.
wine-check: .dev
	@$(PY) packaging/windows/wine/check.py $(ARGS)

# The same for a bundle, its archive and its installer; packaging/windows/wine/bundle.py.
wine-bundle: .dev
	@$(PY) packaging/windows/wine/bundle.py $(ARGS)

# Asks PyPI about each package of requirements.lock; ARGS="NAME ..." asks about some.
audit:
	@python3 packaging/locked.py --audit $(ARGS)

# Reads the headers of the listed files, some MB each.
curated: .dev
	@$(PY) packaging/curated.py $(ARGS)

# Without its stamp it is built again, also where the stamp is of another build than the one installed.
native:
	@rm -f .venv/.outrider/native
	@sh packaging/prepare.sh run

# tests/attack/__main__.py says what it does. Findings are in build/attack.
SECONDS ?= 300
attack: .dev
	@PYTHONPATH=tests:. nice $(PY) -m attack --seconds $(SECONDS) $(ARGS)

# tests/live/event_logs.py says what they are; it prints the first difference of each log that changes.
event-logs: .dev
	@PYTHONPATH=tests:tests/live $(PY) -m live.event_logs record $(ARGS)

# The native part with sanitizers in build/asan or build/tsan; tests/sanitized loads it in place of the installed one.
asan: SANITIZE := address,undefined
asan: PRELOAD := libasan.so libubsan.so libstdc++.so
tsan: SANITIZE := thread
tsan: PRELOAD := libtsan.so libstdc++.so
SANITIZED_TESTS ?= tests/core tests/sim tests/live
asan tsan: .dev
	@cmake=.venv/bin/cmake; test -x $$cmake || cmake=cmake; \
	$$cmake -S . -B build/$@ -G Ninja -DCMAKE_MAKE_PROGRAM=$$PWD/.venv/bin/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DOUTRIDER_SANITIZE=$(SANITIZE) -DOUTRIDER_CHAT=OFF -DPython_EXECUTABLE=$$PWD/$(PY) >build/$@.log \
		&& $$cmake --build build/$@ >>build/$@.log || { tail -30 build/$@.log; exit 1; }
	@OUTRIDER_SANITIZED=$$PWD/build/$@/backend/native PYTHONPATH=tests/sanitized QT_QPA_PLATFORM=offscreen \
		LD_PRELOAD="$(foreach lib,$(PRELOAD),$$($${CC:-cc} -print-file-name=$(lib)))" \
		ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		TSAN_OPTIONS=halt_on_error=1:suppressions=$$PWD/tests/sanitized/tsan.supp OMP_NUM_THREADS=1 \
		$(PY) -m pytest $(SANITIZED_TESTS) $(ARGS)

.PHONY: .dev
.dev:
	@sh packaging/prepare.sh dev

clean:
	rm -rf build dist $(STUBS) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find app backend predictors packaging tests -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
