# Everything one does with this repository. `make` alone prints the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL: # the targets share the tools, and Go uses all processors anyway

# One kind of build for the checks, the tests and the binaries, so that nothing is compiled
# twice: without cgo, so that binaries are static and run on any Linux, without the path of
# the checkout, so that a second checkout finds all of it in the build cache, and without
# what only debuggers read, an eighth of the time to compile. Stack traces need none of it.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false
# A program built with the race detector ends at the first race, and does not sleep for a
# second when it exits.
export GORACE := halt_on_error=1 atexit_sleep_ms=0
# Compilers and checkers keep most of what they allocate: collecting garbage less takes a
# seventh less of a processor for compiling, a quarter for vet and a third for staticcheck.
COMPILE := GOGC=400
# Tools are pinned in tools/go.mod, a module of its own so that none of their dependencies
# reach ours, and built again only when that changes, or Go does (staticcheck refuses code
# newer than itself). The generator of gen/ts is from npm, pinned in tools/package.json.
# Tests find them through this variable.
export EXECWIRE_TOOLS_DIR ?= $(CURDIR)/.cache/tools
TOOLS := $(EXECWIRE_TOOLS_DIR)/.built-$(shell go env GOVERSION)
TOOLS_DOWNLOADED := $(EXECWIRE_TOOLS_DIR)/.downloaded
BUF := $(EXECWIRE_TOOLS_DIR)/buf
BASELINE := proto/baseline.binpb

.PHONY: help
help: ## print this list
	@sed -nE 's/^([a-z][a-z/-]*):[^#]*## (.*)/\1\t\2/p' Makefile | \
		while IFS=$$'\t' read -r target text; do printf '  %-16s %s\n' "$$target" "$$text"; done

# --- run -------------------------------------------------------------------

.PHONY: run
run: bin/execwire ## build the daemon and serve on the default listener
	@echo 'Once it says where it listens, type in another terminal, for example:'
	@echo '    bin/execwire run --server tcp://127.0.0.1:7420 -- echo hello'
	@echo '    bin/execwire run --server tcp://127.0.0.1:7420 -t -i -- bash'
	@echo 'bin/execwire --help lists the commands; Ctrl-C here stops the server.'
	bin/execwire serve

# Phony because the Go command knows better than make what is up to date.
.PHONY: bin/execwire
bin/execwire: ## build the daemon
	$(COMPILE) go build -o $@ ./cmd/execwire

.PHONY: bin/execwire-hub
bin/execwire-hub: ## build the hub of the relay
	$(COMPILE) go build -o $@ ./cmd/execwire-hub

# With the help of the commands in these binaries.
.PHONY: man
man: bin/execwire bin/execwire-hub ## write the manual pages of all commands to bin/man
	rm -rf bin/man
	bin/execwire man bin/man/man1
	bin/execwire-hub man bin/man/man1

.PHONY: run-hub
run-hub: bin/execwire-hub ## build the hub and serve on the default listener
	bin/execwire-hub

# --- test ------------------------------------------------------------------

# The race detector makes everything several times slower. With it run the short tests:
# -short makes some smaller and skips the slowest. These, and those that package testrace
# skips, run without it, each package once; tools/slowtests finds them. So do the packages
# of WITHOUT_RACE.
# All but those that -short skips or that measure memory run with it in make soak. check
# runs architecture. What -short makes smaller runs in full in
# make test-all. Many tests mostly wait, so all of this runs at the same time: tests of
# one package that call t.Parallel, packages, more of them than there are processors, and
# the targets below. check vets. The browser comes last, beside the checks, which have no
# timeouts: with the other targets it would take minutes.
PARALLEL := -p 4 -parallel 4 -timeout 14m -vet=off
# Packages that start hundreds of commands and compare what they print.
WITHOUT_RACE := cmd/execwire integration/cli integration/conformance integration/documents
BROWSER_TESTS := integration/browser
# The programs that tests start, as a small binary without the race detector: a test binary
# with it takes 10 ms of a processor to start, this one takes 1, and there are thousands of starts.
TEST_PROGRAMS := .cache/testprograms
.PHONY: test
test: deps ## all that CI checks
	scripts/in-parallel test-race test-slow test-typescript test-python
	scripts/in-parallel test-browser check

# Modules, and packages of Debian and npm, take 46 s to come on a fresh machine: the processors
# compile meanwhile.
.PHONY: deps
deps: ## build and install what tests need and is missing
	scripts/in-parallel compiled installed

.PHONY: compiled
compiled: bin/execwire bin/execwire-hub $(TEST_PROGRAMS) $(TOOLS)

.PHONY: installed
installed: $(TOOLS_DOWNLOADED)
	scripts/install-test-deps browser
	scripts/install-node-packages tools sdk/typescript examples/mcp web $(BROWSER_TESTS)/vite

.PHONY: machine
machine:
	scripts/install-test-deps

.PHONY: $(TEST_PROGRAMS)
$(TEST_PROGRAMS):
	go build -o $@ ./internal/testprograms
test-race test-slow: export EXECWIRE_TEST_PROGRAMS := $(CURDIR)/$(TEST_PROGRAMS)
# The commands that tests run. The go command takes 0.3 s of a processor to see that one is up
# to date, and every package of integration would ask.
TEST_COMMANDS := .cache/test/race
test-race: export EXECWIRE_TEST_COMMANDS := $(CURDIR)/$(TEST_COMMANDS)
test-slow: export EXECWIRE_TEST_COMMANDS := $(CURDIR)/bin

.PHONY: test-short
test-short: ## the short tests, without the race detector
	go test $(PARALLEL) -short ./...

.PHONY: test-race
test-race: $(TOOLS) $(TEST_PROGRAMS) ## the short tests, with the race detector
	CGO_ENABLED=1 $(COMPILE) go build -race -o $(TEST_COMMANDS)/ ./cmd/execwire ./cmd/execwire-hub
	CGO_ENABLED=1 go test $(PARALLEL) -race -short $$(go list ./... | grep -vE '/(architecture|$(subst $() ,|,$(WITHOUT_RACE)))$$')

.PHONY: test-slow
test-slow: $(TOOLS) $(TEST_PROGRAMS) bin/execwire bin/execwire-hub ## the tests that test-race skips, without the race detector
	EXECWIRE_SLOW_TESTS=1 go test $(PARALLEL) -short $(addprefix ./,$(WITHOUT_RACE))
	EXECWIRE_SLOW_TESTS=1 go test $(PARALLEL) -short $$(go -C tools run ./slowtests $(CURDIR) all $(WITHOUT_RACE))

.PHONY: test-all
test-all: $(TOOLS) test-conformance test-browser test-packages test-deploy build-platforms ## all tests in full, without the race detector, and those of browsers, packages and images
	go test -p 4 -parallel 4 -timeout 30m ./...

# A module of its own, so that the driver of the browser stays out of the main one. Four tests
# at a time: one of them waits for most of its time.
.PHONY: test-browser
test-browser: bin/execwire bin/execwire-hub ## test the SDK for TypeScript, the console, and dev servers behind a hub, in Chromium
	scripts/install-test-deps browser
	rm -rf .cache/web && mkdir -p .cache/web
	$(MAKE) console WEB_OUT=.cache/web
	@for part in .cache/web/*; do cmp "$$part" "gen/web/$${part##*/}" || { echo "run 'make console'" >&2; exit 1; }; done
	scripts/install-node-packages sdk/typescript web $(BROWSER_TESTS)/vite
	go -C $(BROWSER_TESTS) mod tidy -diff
	go -C $(BROWSER_TESTS) vet .
	go -C $(BROWSER_TESTS) test -count=1 -parallel 4 -timeout 14m .

# Charts, manifests and the image, in a module of its own for Helm, the types of
# Kubernetes and go-containerregistry. Nothing here needs a container engine or a cluster.
.PHONY: test-deploy
test-deploy: bin/execwire bin/execwire-hub ## test the container image, the Helm chart, the manifests for Kubernetes and the alert rules
	scripts/install-test-deps deploy
	go -C tools/deploy mod tidy -diff
	go -C tools/deploy vet ./...
	go -C tools/deploy test -count=1 -timeout 14m ./...

# The runner is in a module of its own: only this target needs it, and the other tools keep
# their versions. It fails for a known failing case that passes, too.
CONNECT_CONFORMANCE := .cache/connect
.PHONY: test-conformance
test-conformance: $(TOOLS) ## Connect's conformance runner against the handler of calls by HTTP
	go build -o $(CONNECT_CONFORMANCE)/server ./internal/connectserver
	$(BUF) build "$$(go -C tools/connect mod download -json connectrpc.com/conformance | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/proto" \
		--output $(CONNECT_CONFORMANCE)/contract.binpb
	cd tools/connect && go tool connectconformance --conf config.yaml --mode server --known-failing @known-failing.txt -- \
		$(CURDIR)/$(CONNECT_CONFORMANCE)/server $(CURDIR)/$(CONNECT_CONFORMANCE)/contract.binpb

# Servers of the reference's contract are in the tests; this is the reference itself,
# of the newer version, as npm has it.
REFERENCE := .cache/reference
.PHONY: reference
reference: ## install the reference by npm, do all with it that the SDK does, and upgrade a server of its client
	npm install --no-save --no-audit --no-fund --prefix $(REFERENCE) @openai/codex@0.169.0
	export EXECWIRE_REFERENCE=$$(ls $(CURDIR)/$(REFERENCE)/node_modules/@openai/codex-linux-*/vendor/*/bin/codex); \
		go test -count=1 -timeout 14m -v -run '^TestTransports/the_reference' ./integration/transports && \
		go test -tags reference -count=1 -timeout 14m -v -run '^TestUpgrade_Reference$$' ./integration/upgrade

# What the tests do in small, at full size: attacks of hostile clients, and streams
# of the relay in a million scenarios.
SOAK_DURATION ?= 1h
.PHONY: soak
soak: test-all ## make every attack on a server at full size, all at once for an hour, ten thousand kills, and a million relay scenarios
	EXECWIRE_SOAK=1 go test -timeout 14m -v -run '^(TestHostile|TestTerminate_ManyTimes)' ./integration/hostile ./internal/process
	EXECWIRE_SOAK=1 go test -timeout 14m -v -run '^(TestSourceTree|TestRelay_LargeTransfer|TestSessions_ManyCuts)_' ./integration/files ./integration/relay ./integration/session
	EXECWIRE_SOAK=1 go test -timeout 60m -v -run '^TestUpgrade_' ./integration/upgrade
	cd sdk/python && EXECWIRE_SOAK=1 PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m tests test_upgrade
	EXECWIRE_SOAK=1 node sdk/typescript/scripts/test.mjs upgrade
	EXECWIRE_SOAK=1 CGO_ENABLED=1 go test -race -short -timeout 30m -run '^TestHostile' ./integration/hostile
	EXECWIRE_SOAK=1 CGO_ENABLED=1 go test $(PARALLEL) -race -short -skip '^TestHostile' $$(go -C tools run ./slowtests $(CURDIR) race)
	CGO_ENABLED=1 go test -race -short -timeout 30m $(addprefix ./,$(WITHOUT_RACE))
	EXECWIRE_SOAK_DURATION=$(SOAK_DURATION) go test -timeout 3h -v -run '^TestHostileSoak$$' ./integration/hostile
	EXECWIRE_RELAY_RUNS=1000000 go test -timeout 90m -v -run '^TestProperty_' ./relay

# --- deploy ----------------------------------------------------------------

IMAGE ?= .cache/image
.PHONY: image
image: ## write the container image as an OCI layout to IMAGE=.cache/image, and print its digest
	@mkdir -p $(dir $(IMAGE))
	@go -C tools/deploy run ./image --source $(CURDIR) --out $(abspath $(IMAGE)) --version $(VERSION)

.PHONY: dashboards
dashboards: bin/execwire bin/execwire-hub ## draw docs/images/dashboard-*.png from a scrape of eight minutes
	scripts/install-test-deps dashboards
	scripts/install-node-packages tools/dashboards
	tools/dashboards/draw

.PHONY: deploy-manifests
deploy-manifests: ## write the manifests of deploy/kubernetes from the chart
	EXECWIRE_UPDATE_DOCS=1 go -C tools/deploy test -count=1 -run "^TestManifests_AreTheChart$$" .

# The inputs that are checked in run in the tests already: this looks for others.
FUZZTIME ?= 30s
FUZZ ?= .
.PHONY: fuzz
fuzz: ## look for inputs that break something, FUZZTIME=30s for each target FUZZ=pattern
	scripts/fuzz $(FUZZTIME) '$(FUZZ)'

# Each figure beside its floor in the same run: docs/perf.md says how.
.PHONY: bench
bench: ## measure against the budgets, BENCH_RUNS times, and write the table of docs/perf.md
	EXECWIRE_BENCH_TABLE=$(CURDIR)/docs/perf.md EXECWIRE_BENCH_RUNS=$(or $(BENCH_RUNS),1) \
		go test -timeout 90m -run '^$$' -bench '^BenchmarkBudgets$$' -benchtime 1x ./integration/bench

.PHONY: bench-hostile
bench-hostile: ## measure what attacks cost a neighbour and write the table of docs/reliability.md
	EXECWIRE_HOSTILE_TABLE=$(CURDIR)/docs/reliability.md \
		go test -timeout 15m -run '^$$' -bench '^BenchmarkHostile$$' -benchtime 1x ./integration/hostile

.PHONY: bench-packages
bench-packages: ## run the benchmarks of single packages
	go test -run '^$$' -bench . -benchmem ./client ./gateway/... ./internal/... ./relay ./server

# --- SDKs ------------------------------------------------------------------

# Against the real server and hub, with the compiler and the packages that the lock
# file pins.
.PHONY: test-typescript
test-typescript: bin/execwire bin/execwire-hub ## test the SDK for TypeScript
	scripts/install-node-packages sdk/typescript examples/mcp
	node sdk/typescript/scripts/test.mjs

# Against the real server and hub, by the Python and the libraries of Debian.
.PHONY: test-python
test-python: bin/execwire bin/execwire-hub ## test the SDK for Python
	scripts/install-node-packages examples/mcp
	cd sdk/python && PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m tests

# By pyright, strictly; test-python runs mypy. Not in make test: it is 38 MB of npm, and 9 s
# of a processor.
.PHONY: check-types
check-types: machine ## check the types of the SDK for Python and its examples with pyright
	scripts/install-node-packages tools/sdk
	cd sdk/python && ../../tools/sdk/node_modules/.bin/pyright --pythonpath /usr/bin/python3

.PHONY: api
api: machine ## write the API reference of the SDKs to docs/api
	scripts/api

# 9 s of a processor and 35 MB of npm, so not in make test either.
.PHONY: check-api
check-api: machine ## fail when docs/api is not what the SDKs generate, or a public name has no comment
	scripts/api --check

PACKAGES ?= .cache/packages
.PHONY: packages-sdk
packages-sdk: ## build the packages of the SDKs for PyPI and npm, into PACKAGES=directory
	scripts/package-sdks $(PACKAGES)

# --- packages --------------------------------------------------------------

# nfpm and cyclonedx-gomod are in a module of their own: only these targets need them.
VERSION ?= 0.1.0-dev
.PHONY: packages
packages: ## build archives, deb, rpm, npm packages and more in dist, VERSION=1.2.3
	scripts/release packages $(VERSION)

.PHONY: release
release: ## the same of a commit whose changelog has the version; uploads nothing
	scripts/release release $(VERSION)

# Builds all artefacts twice, and installs them. Not in make test: it takes minutes, and
# needs rpm and root.
.PHONY: test-packages
test-packages: bin/execwire bin/execwire-hub check-types check-api ## build all artefacts and SDK packages twice, compare them, install them, and use what is installed
	scripts/install-test-deps packages
	scripts/install-node-packages sdk/typescript
	node sdk/typescript/scripts/test.mjs package
	cd sdk/python && PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m tests test_package
	go -C tools/packages mod tidy -diff
	go -C tools/packages vet .
	go -C tools/packages test -count=1 -timeout 30m .

# --- check -----------------------------------------------------------------

.PHONY: check
check: check-format check-go check-platforms check-proto check-generated check-modules check-guards ## all checks that run no tests

# Not those without Go files: while their tests run, they make and remove directories.
GO_DIRECTORIES := $(filter-out bin/ sdk/ web/,$(wildcard */))
.PHONY: check-format
check-format: $(TOOLS)
	@unformatted=$$(gofmt -l $(GO_DIRECTORIES)); if [ -n "$$unformatted" ]; then echo "run 'make fmt': $$unformatted" >&2; exit 1; fi
	$(BUF) format --diff --exit-code
	scripts/check-text

# The rules of the source (imports, forbidden calls, comments) are tests.
.PHONY: check-go
check-go: $(TOOLS)
	$(COMPILE) go vet ./...
	$(COMPILE) $(EXECWIRE_TOOLS_DIR)/staticcheck ./...
	go test ./architecture

# The client on other systems: all of it is vetted from source, and the tests of the packages
# with rules of other systems. Other tests start servers, which need Linux.
# test-all and packages compile it, at 30 s of a processor each on a fresh machine. For the
# client a system has the same types on both processors: check takes one, test-all both.
PLATFORMS := linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
VETTED_PLATFORMS := linux/arm64 darwin/arm64 windows/amd64
PLATFORM_PACKAGES := ./client/... ./cmd/execwire/...
PLATFORM_TESTS := ./client/internal/commandgroup ./client/internal/transfer ./cmd/execwire/internal/terminal ./internal/secretfile
define for-each-platform
for platform in $(2); do \
	export GOOS=$${platform%/*} GOARCH=$${platform#*/}; \
	{ $(1); } || { echo "fails for $$platform"; exit 1; }; \
done
endef
TYPECHECK := $(EXECWIRE_TOOLS_DIR)/typecheck
.PHONY: check-platforms
check-platforms: $(TOOLS) ## vet what clients need for the other systems
	$(call for-each-platform,$(TYPECHECK) . $(PLATFORM_PACKAGES) && $(TYPECHECK) -test . $(PLATFORM_TESTS),$(VETTED_PLATFORMS))

.PHONY: build-platforms
build-platforms: ## build and vet what clients need for each other system
	$(call for-each-platform,go build $(PLATFORM_PACKAGES) && go vet $(PLATFORM_TESTS),$(PLATFORMS))

.PHONY: check-proto
check-proto: lint-proto breaking

.PHONY: lint-proto
lint-proto: $(TOOLS)
	$(BUF) lint

.PHONY: breaking
breaking: $(TOOLS) ## hold the protos against the last release
	$(BUF) breaking --against $(BASELINE)

.PHONY: check-generated
check-generated: generators ## fail when generated files are not what the protos generate
	scripts/check-generated $(BUF)

.PHONY: check-modules
check-modules:
	go mod tidy -diff
	scripts/dependencies | diff -u docs/dependencies.txt - || { echo "run 'make dependencies' and justify what is new" >&2; exit 1; }

# Shows that the checks above can fail.
.PHONY: check-guards
check-guards: generators
	scripts/check-guards

# --- make anew -------------------------------------------------------------

.PHONY: fmt
fmt: $(TOOLS) ## format Go and protobuf
	gofmt -w $(GO_DIRECTORIES)
	$(BUF) format --write

.PHONY: generate
generate: generators ## make gen/ and the descriptors of reflection from the protos
	scripts/generate $(BUF)

# After a change of web, and of the SDK for TypeScript or the protos, which are in the bundle.
.PHONY: console
console: ## bundle the page of execwire console from web into gen/web
	scripts/install-node-packages sdk/typescript web
	node sdk/typescript/scripts/build.mjs
	sdk/typescript/node_modules/.bin/tsc -p web
	go -C tools run ./web $(CURDIR) $(WEB_OUT)

.PHONY: dependencies
dependencies: ## list again what each binary is made of
	scripts/dependencies > docs/dependencies.txt

# At a release only: what was in the last one is what must not break.
.PHONY: baseline
baseline: $(TOOLS) ## at a release: remember the protos that must not break
	$(BUF) build --exclude-source-info --output $(BASELINE)

.PHONY: clean
clean: ## remove binaries, built tools and what came from npm
	rm -rf bin dist .cache sdk/typescript/{node_modules,src/gen,dist,build} tools/sdk/node_modules examples/mcp/node_modules integration/browser/vite/node_modules

# Early, and beside what compiles: see deps.
$(TOOLS_DOWNLOADED): tools/go.mod tools/go.sum
	@mkdir -p $(@D)
	@go -C tools list -deps tool >/dev/null
	@touch $@

# What only tools need is compiled without optimization, which takes most of the time.
TOOL_MODULES := buf.build cel.dev github.com/bufbuild github.com/cncf github.com/envoyproxy github.com/jhump github.com/tetratelabs
$(TOOLS): tools/go.mod tools/go.sum $(wildcard tools/buf/* tools/typecheck/*)
	@echo 'building the tools of tools/go.mod: about a minute the first time'
	GOBIN=$(EXECWIRE_TOOLS_DIR) go -C tools install $(TOOL_MODULES:%='-gcflags=%/...=-N -l -dwarf=false') -ldflags='-s -w' tool
	@touch $@

# The plugin from npm, which generates gen/ts.
.PHONY: generators
generators: $(TOOLS)
	@scripts/install-node-packages tools
