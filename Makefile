# `make` lists what there is to do. `make test` is all that a fresh machine needs besides Go: it fetches or builds the
# images of the test servers first, and tests skip, with a reason, for what it could not get.

# More flags for `go test`, such as GOTESTFLAGS='-race -v -run TestName'.
GOTESTFLAGS ?=

# Most tests wait for servers, so shards of them run side by side: see internal/testshards.
SHARDS_AT_ONCE ?= 8
TEST_TIMEOUT   ?= 15m

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: images ## Run all tests (GOTESTFLAGS='-race -run Name' adds flags)
	go run ./internal/testshards -at-once $(SHARDS_AT_ONCE) -- -timeout $(TEST_TIMEOUT) $(GOTESTFLAGS)

.PHONY: test-fast
test-fast: ## Run the tests that need no server, in half a minute
	go test . ./internal/... ./backend/internal/... ./backend/memory ./examples/...

.PHONY: race
race: ## Run all tests with the race detector
	@$(MAKE) test GOTESTFLAGS='-race $(GOTESTFLAGS)'

.PHONY: mutants
mutants: images ## Break the code in one place at a time and see that the tests notice (some minutes)
	go run ./internal/testmutants

.PHONY: bench
bench: images ## Run all benchmarks
	go test -run '^$$' -bench . -benchmem -p 1 $(GOTESTFLAGS) ./...

.PHONY: lint
lint: ## Run the linters (built on first use, which takes a minute or two)
	$(GOLANGCI_LINT) run

.PHONY: images
images: ## Fetch or build the images of the test servers
	@conformance/containers/images/build.sh
