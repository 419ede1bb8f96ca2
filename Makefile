# Everything one does with this repository. `make` alone prints the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tools are pinned in tools/go.mod, a module of its own so that none of their
# dependencies reach ours, and are built once per change of it. Tests find them
# through this variable.
export EXECWIRE_TOOLS_DIR ?= $(CURDIR)/.cache/tools
TOOLS := $(EXECWIRE_TOOLS_DIR)/.built
BUF := $(EXECWIRE_TOOLS_DIR)/buf

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z][a-z/-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z/-]+):[^#]*## /\1\t/' | \
		while IFS=$$'\t' read -r name text; do printf '  %-18s %s\n' "$$name" "$$text"; done

.PHONY: generate
generate: $(TOOLS) ## regenerate gen/ from the protos
	$(BUF) generate

.PHONY: check-generated
check-generated: $(TOOLS) ## fail when gen/ is not what the protos generate
	scripts/check-generated $(BUF)

$(TOOLS): tools/go.mod tools/go.sum
	@echo "building the tools of tools/go.mod (about two minutes the first time)"
	GOBIN=$(EXECWIRE_TOOLS_DIR) go -C tools install tool
	@touch $@
