# `make` alone lists what there is. Everything takes Go; what takes servers starts them itself.

# It reads packages as the tests build them, so that a machine builds SQLite, sarama and pgx once. It runs go vet's checks too.
GOLANGCI_LINT = go run -exec $(CURDIR)/internal/test/as-tests.sh github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ONCEVET       := go run -exec $(CURDIR)/internal/test/as-tests.sh ./cmd/oncevet
GOFUMPT       := go run mvdan.cc/gofumpt@v0.12.0

# Names of servers to start or stop, as in S="kafka postgres"; empty means all.
S ?=

# All packages of all modules: go.work joins them, and ./... names only those of one.
ALL := github.com/txonce/txonce/...

# The race detector does not watch SQLite's own C, which was translated to Go, because that takes five times as long, and the memory
# is not Go's; nor the arithmetic of Go's cryptography, which shares nothing. What calls them is watched.
UNWATCHED := modernc.org/sqlite/lib modernc.org/libc modernc.org/memory crypto/internal/fips140/...

# Only test-all watches these too: packages of the standard library that compute. Watching them takes a sixth of the tests' processor time, and half of
# it for the webhooks. They share their caches by means of package sync, which must be watched, so it is not inlined into them (-l): otherwise others
# are blamed for races that they do not have.
COMPUTING := bufio bytes crypto/ecdsa crypto/rsa crypto/x509 encoding/... errors fmt go/... hash/... html/... math/big net/textproto net/url path/... reflect \
	regexp/... sort strconv strings text/... time unicode/...

# In the format of GOFLAGS, which shells read too.
export RACE := -race -trimpath $(foreach p,$(UNWATCHED),-gcflags=$(p)=-race=false) $(if $(TXONCE_TEST_ALL),,$(foreach p,$(COMPUTING),'-gcflags=$(p)=-race=false -l'))

# The race detector takes a C compiler. `test` insists on it; test-short, which needs only Go, goes without.
RACE_IF_CC := $(if $(shell command -v "$$(go env CC)"),$(RACE))

# How long each fuzz target runs.
FUZZTIME ?= 30s

# Where the servers are. internal/test/testdb would find the file too; exported, it also serves what is not a test.
ENV = set -a; . ./.services/env; set +a

.PHONY: help
help: ## List these targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-15s %s\n", $$1, $$2 }'

.PHONY: demo
demo: ## Kill workers mid-payment and audit the ledger; needs nothing but Go
	@echo "Go builds the demo first; the first time that downloads and compiles for some minutes."
	go run ./examples/quickstart

.PHONY: test
test: tools services-up ## Each test on each database and broker, with the race detector
	@$(ENV); internal/test/run.sh

.PHONY: test-all
test-all: ## As test, with every combination of settings and Debezium; then bench-short, mutants, chaos-relay and soak
	@TXONCE_TEST_ALL=1 $(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory bench-short
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory chaos-relay
	@$(MAKE) --no-print-directory soak

.PHONY: tools
tools: ## Install the programs that make test needs, or name all that are missing
	@go run ./internal/test/system/services programs $(if $(TXONCE_TEST_ALL),debezium) || { echo "(make test-short needs only Go)"; exit 1; }

# The commit that test-changed compares with.
SINCE ?= main

.PHONY: test-changed
test-changed: tools services-up ## The packages that depend on what changed since SINCE (main), on real servers
	@$(ENV); SINCE=$(SINCE) internal/test/run.sh

# What flake runs: packages, a pattern for their tests, and how often.
PKG ?= $(ALL)
RUN ?=
N   ?= 20

.PHONY: flake
flake: services-up ## Run the tests of PKG that match RUN N (20) times on a busy machine, and count failures
	@$(ENV); export TMPDIR="$$(go run ./internal/test/system/services memory)"; go run ./internal/test/flake -n $(N) -run '$(RUN)' $$(go list $(PKG))

.PHONY: test-short
test-short: ## What needs nothing but Go
	go test -short $(RACE_IF_CC) -skip '^Example.*_postgres$$' $(ALL)

.PHONY: lint
lint: ## Formatting, golangci-lint with go vet's checks, oncevet on the examples, and each module alone: go vet, and whether go.mod and go.work.sum are complete
	@unformatted=$$($(GOFUMPT) -l .) && if [ -n "$$unformatted" ]; then \
		echo "not formatted; run: $(GOFUMPT) -w" $$unformatted; exit 1; fi
	$(GOLANGCI_LINT) run $$(go work edit -json | sed -nE 's,.*"DiskPath": "([^"]*)".*,\1/...,p')
	$(ONCEVET) github.com/txonce/txonce/examples/...
	internal/test/alone.sh mod tidy -diff
	internal/test/as-tests.sh internal/test/alone.sh vet ./...
	@sums=$$(cksum <go.work.sum); go list -m all >/dev/null && go list -test -deps $(ALL) >/dev/null && [ "$$sums" = "$$(cksum <go.work.sum)" ] || \
		{ echo "go.work.sum lacks sums that builds in the workspace write: commit it as it is now"; exit 1; }

.PHONY: vulncheck
vulncheck: ## Known vulnerabilities in what is called; asks the Go project's database
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 $(ALL)

# Further flags for chaos-relay.
CHAOS ?=

.PHONY: chaos-relay
chaos-relay: ## Kill and freeze relays, then audit the topic
	@$(MAKE) --no-print-directory services-up S="postgres kafka"
	@$(ENV); go run ./internal/test/system/relaychaos -json $(CHAOS)

# How many calls with each of four kinds of other systems, and further flags, such as CALLS="2500 -calls.proof $$PWD".
CALLS ?= 2500

.PHONY: calls
calls: ## Make 10,000 calls to a payment provider that misbehaves, while processes are killed and frozen, and audit
	@$(MAKE) --no-print-directory services-up S="postgres mariadb mysql"
	@$(ENV); go test -count=1 -v -timeout=90m -run TestCalls ./internal/test/system/calls -calls.n=$(CALLS)

# Further flags for failover, such as FAILOVER="-database mariadb -failovers 20" (make services-up S=mariadb before).
FAILOVER ?=

.PHONY: failover
failover: ## Let the database lose commits 100 times under load, and audit the effects
	@$(MAKE) --no-print-directory services-up S="postgres kafka"
	@$(ENV); export TMPDIR="$$(go run ./internal/test/system/services memory)"; go run ./internal/test/system/failover -json $(FAILOVER)

# Further flags for bench and bench-short, such as BENCH="-only singles,batches -json".
BENCH ?=

.PHONY: bench
bench: ## Compare with transactions by hand and with other libraries; writes docs/performance.md
	@$(MAKE) --no-print-directory services-up S="postgres kafka elasticmq rabbitmq"
	@$(ENV); cd bench && go run . -docs ../docs $(BENCH)

.PHONY: bench-short
bench-short: ## The same in less than 3 minutes; fails if a figure is far below its target
	@$(MAKE) --no-print-directory services-up S="postgres kafka elasticmq rabbitmq"
	@$(ENV); cd bench && go run . -short $(BENCH)

# How many orders each pair handles, and further flags for it.
MESSAGES ?= 20000
PAIRS    ?=

.PHONY: pairs
pairs: services-up ## Run the quickstart with every broker and every store, with MESSAGES (20000)
	@$(ENV); dir=$$(mktemp -d) && trap 'rm -r $$dir' EXIT && go build -o $$dir/quickstart ./examples/quickstart && \
	for broker in kafka sqs rabbitmq; do for store in pgx sql-postgres mysql sqlite; do \
		printf '%-9s %-13s' $$broker $$store; \
		$$dir/quickstart -broker $$broker -store $$store -messages $(MESSAGES) -json $(PAIRS) > $$dir/pair || { cat $$dir/pair; exit 1; }; \
		tail -n 1 $$dir/pair; \
	done; done

# An API of your own for storm, and further flags of txonce storm, such as STORM="--allow staging.example --effects https://…".
URL   ?=
STORM ?=

.PHONY: storm
storm: ## Send the HTTP example, or your API at URL, repeats of one request with cut connections; then see it fail without a Guard
ifneq ($(URL),)
	go run ./cmd/txonce storm --url '$(URL)' $(STORM)
else
	go run ./examples/http-api -storm
	! go run ./examples/http-api -storm -unguarded
endif

# How long the runs at the wire begin cases, on which servers (see TestWire; all is one of them), what they draw from (empty: the clock), the first case
# and their number (empty: as many as fit), and further flags such as WIRE="-wire.log".
SECONDS ?= 30
ENGINE  ?= postgres mariadb
SEED    ?=
FROM    ?=
CASES   ?=
WIRE    ?=

.PHONY: wire
wire: ## Inject faults at single messages between stores and servers for SECONDS (30) each, until each kind was tried, and audit
	@$(MAKE) --no-print-directory services-up S="$(if $(filter all mysql,$(ENGINE)),mysql) postgres mariadb $(filter kafka rabbitmq,$(ENGINE))"
	@$(ENV); go test -count=1 -v -parallel=2 -timeout=5h -run 'TestWire/^($(if $(filter all,$(ENGINE)),.*,$(subst $() $(),|,$(strip $(ENGINE)))))$$' \
		./internal/test/system/wire -wire.full=$(if $(CASES),false,true) -wire.seconds=$(SECONDS) $(if $(SEED),-wire.seed=$(SEED)) $(if $(FROM),-wire.from=$(FROM)) \
		$(if $(CASES),-wire.cases=$(CASES)) $(WIRE)

# How many messages each database handles in the soak, and further flags for it, such as -soak.seed=1 -soak.log.
SOAK_MESSAGES ?= 20000
SOAK          ?=

.PHONY: soak
soak: ## Run handlers that misbehave on purpose on every database, with SOAK_MESSAGES (20000), and audit
	@$(MAKE) --no-print-directory services-up S="postgres postgres18 mariadb mysql"
	@$(ENV); go test $(RACE) -count=1 -v -timeout=90m -run TestSoak ./internal/test/system/soak -soak.messages=$(SOAK_MESSAGES) $(SOAK)

# Further flags for sim, such as SIM="-seconds 600 -json counts.json". SEED, FROM and CASES run single cases again.
SIM ?=

.PHONY: sim
sim: ## Consumers and relays in virtual time, with faults at every boundary, from a seed; needs nothing but Go
	@go run ./internal/test/simulate $(SIM)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file func; do \
		echo "$$file $${func#func }"; \
		go test -short -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; done

# Further flags for mutants, such as MUTANTS="-package adapters/kafka", or MUTANTS="-from 118" after an interruption.
MUTANTS ?=

.PHONY: mutants
mutants: services-up ## Break each guarantee on purpose and name the test that notices
	@$(ENV); export TMPDIR="$$(go run ./internal/test/system/services memory)"; go run ./internal/test/mutants $(MUTANTS)

.PHONY: services-up
services-up: ## Start every database and broker, or those in S="…"
	@go run ./internal/test/system/services up $(S)

.PHONY: services-down
services-down: ## Stop the servers this checkout started and remove their data
	@go run ./internal/test/system/services down $(S)
