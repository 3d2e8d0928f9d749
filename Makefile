# KubeDevice. `make` builds everything; `make help` lists the targets.

SHELL := /bin/bash -euo pipefail
.DEFAULT_GOAL := build

# One recipe and one set of flags for programs and plugins: a plugin loads only into a program that was built like it.
export GOFLAGS := -trimpath -buildvcs=false
export CGO_ENABLED := 1

VERSION    := v0.1.0
KUBERNETES := $(shell sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\)$$/\1/p' go.mod)
LDFLAGS    := -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)+kubedevice-$(VERSION) \
              -X k8s.io/client-go/pkg/version.gitVersion=$(KUBERNETES)+kubedevice-$(VERSION)
OUT        := $(CURDIR)/_output
MODULES    := . pkg/sdk plugins/template hack/images hack/release hack/chart hack/tools test

# "make verify" vets every package once; "go test" need not do it again for each way to build them.
TEST := go test -vet=off

# Where programs of others take part, a test that fails is run once more by itself. Both runs are printed: a test that
# passes only then has a fault, too. Unit tests have one run. GOTESTSUM_FORMAT=standard-verbose prints all logs.
export GOTESTSUM_FORMAT ?= standard-quiet
RERUN := $(OUT)/tools/gotestsum --rerun-fails=1 --rerun-fails-max-failures=5

##@ Build

.PHONY: build
build: binaries plugins kubectl-device ## Build the programs and their plugins into _output/. The default.

.PHONY: binaries
binaries: ## Build _output/kube-scheduler and _output/kubecri.
	@echo "Building kube-scheduler and kubecri (minutes the first time, seconds later)"
	@go build -ldflags '$(LDFLAGS)' -o $(OUT)/ ./cmd/kube-scheduler ./cmd/kubecri

.PHONY: plugins
plugins: ## Build simgpu and nvidiagpu into _output/plugins/: scheduler/, device/ and, simulated, simulated/.
	@for built in scheduler/simgpu:scheduler simulated/simgpu:device scheduler/nvidiagpu:scheduler \
	  device/nvidiagpu:device; do \
	  file=$${built%:*}.so; \
	  echo "Building plugin _output/plugins/$$file"; \
	  go build -buildmode=plugin -o $(OUT)/plugins/$$file ./plugins/$$(basename $$file .so)/$${built#*:}; \
	done

# What kubectl loads is a program of its own: none of what the plugins of the programs need concerns it.
KUBECTL_DEVICE    := CGO_ENABLED=0 go build -ldflags '-s -w $(LDFLAGS)'
KUBECTL_PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

# The page of "kubectl device web" is embedded into it. Who has no Node.js builds it without.
PAGE := pkg/kubectl/web/ui
NPM  := $(shell command -v npm)

.PHONY: page
ifneq ($(NPM),)
page: $(PAGE)/dist/app.js ## Build the page of "kubectl device web", which kubectl-device embeds (Node.js 20 or later).
else
page:
	@echo "SKIPPED: without Node.js and npm, kubectl-device has no page, and says so in kubectl device web"
endif

$(PAGE)/dist/app.js: $(wildcard $(PAGE)/src/*) $(PAGE)/package.json $(PAGE)/node_modules/.package-lock.json
	@echo "Building the page of kubectl device web"
	@cd $(PAGE) && npm run --silent build

%/node_modules/.package-lock.json: %/package-lock.json
	@cd $* && npm ci --ignore-scripts --loglevel=error && touch node_modules/.package-lock.json

.PHONY: kubectl-device
kubectl-device: page ## Build _output/kubectl-device, the plugin of kubectl, for this machine.
	@echo "Building kubectl-device"
	@$(KUBECTL_DEVICE) -o $(OUT)/ ./cmd/kubectl-device

.PHONY: kubectl-device-all
kubectl-device-all: page ## Build it for Linux, macOS and Windows, as archives with checksums in _output/krew/.
	@for platform in $(KUBECTL_PLATFORMS); do \
	  echo "Building kubectl-device for $$platform"; \
	  into=$(OUT)/krew/$${platform/\//-}; \
	  GOOS=$${platform%/*} GOARCH=$${platform#*/} $(KUBECTL_DEVICE) -o $$into/ ./cmd/kubectl-device; \
	  cp LICENSE $$into/; \
	  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C $$into -cf - . | \
	    gzip -n >$(OUT)/krew/kubectl-device-$${platform/\//-}.tar.gz; \
	done
	@cd $(OUT)/krew && sha256sum *.tar.gz | tee SHA256SUMS

PLATFORMS := linux/amd64 linux/arm64
IMAGES    := $(OUT)/tools/images
REVISION   = $$(git describe --always --abbrev=40 --dirty --exclude '*')
CREATED    = $${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}

# The C compiler is named without its directory, which would be part of the build IDs, and comes before one that is
# installed.
.PHONY: images
images: build ## Make container images in _output/images/; PLATFORMS=linux/amd64 for one architecture (Debian's apt).
	@cd hack/images && go build -o $(IMAGES) .
	@mkdir -p $(OUT)/images-build
	@for platform in $(PLATFORMS); do \
	  architecture=$${platform#linux/}; \
	  into=$(OUT)/images-build/$$architecture; \
	  if [ $$architecture = $$(go env GOHOSTARCH) ]; then ln -sfn $(OUT) $$into; continue; fi; \
	  echo "Building for $$platform"; \
	  compiler=$$($(IMAGES) compiler $$architecture $(OUT)/images-build/compiler-$$architecture); \
	  PATH=$$(dirname $$compiler):$$PATH GOARCH=$$architecture CC=$$(basename $$compiler) \
	    $(MAKE) --no-print-directory binaries plugins OUT=$$into; \
	done
	@$(IMAGES) write -platforms '$(PLATFORMS)' -programs $(OUT)/images-build -work $(OUT)/images-build \
	  -out $(OUT)/images -licence LICENSE -version $(VERSION) \
	  -revision $(REVISION) -created $(CREATED)

# The directory of a plugin's module, the name of its files and of its image, and the unpacked programs of the release
# that is to load it.
PLUGIN ?= plugins/template
NAME   ?= $(notdir $(abspath $(PLUGIN)))
HOSTS  ?= $(OUT)

.PHONY: plugin-image
plugin-image: $(if $(filter $(OUT),$(HOSTS)),binaries) ## Build and check PLUGIN=directory, make its image.
	@cd hack/images && go build -o $(IMAGES) .
	@$(IMAGES) plugin -name '$(NAME)' -module '$(PLUGIN)' -kubecri '$(HOSTS)/kubecri' -sdk pkg/sdk \
	  -installer hack/images/install -work $(OUT)/plugin-build/'$(NAME)' -out $(OUT)/plugin-images -version $(VERSION) \
	  -created $(CREATED)

.PHONY: images-start
images-start: ## Start the programs of the other architecture's image under Debian's qemu (root, Linux 6.7).
	@cd hack/images && go build -o $(IMAGES) .
	@$(IMAGES) start -architecture $(if $(filter amd64,$(shell go env GOHOSTARCH)),arm64,amd64) \
	  -image $(OUT)/images/kubedevice -work $(OUT)/images-build

RELEASE := $(OUT)/tools/release

.PHONY: release
release: images kubectl-device-all ## Make the files of a release in _output/release/; KEY=file signs them, REGISTRY=host/path.
	@cd hack/release && go build -o $(RELEASE) .
	@rm -rf $(OUT)/chart
	@if [ -f deploy/chart/Chart.yaml ]; then \
	  $(MAKE) --no-print-directory helm; \
	  $(OUT)/tools/helm package deploy/chart --destination $(OUT)/chart --version $(VERSION:v%=%) \
	    --app-version $(VERSION); \
	fi
	@$(RELEASE) write -architectures '$(PLATFORMS:linux/%=%)' -sources . -programs $(OUT)/images-build \
	  -kubectl $(OUT)/krew -images $(OUT)/images -charts $(OUT)/chart -out $(OUT)/release -key '$(KEY)' \
	  -registry '$(REGISTRY)' \
	  -version $(VERSION) -revision $(REVISION) -created $(CREATED)

.PHONY: release-trial
release-trial: ## Push what is in _output/release/, signed, to a registry of its own, and read it back.
	cd hack/release && $(TEST) -count 1 -v -run Registry . -args -release=$(OUT)/release

.PHONY: chart
chart: ## Generate those templates of deploy/chart that have the manifests of deploy, and docs/reference/chart-values.md.
	@cd hack/chart && go run .

.PHONY: helm
helm: ## Build Helm, which tests install the chart with, into _output/tools/.
	@cd hack/chart && go build -o $(OUT)/tools/helm helm.sh/helm/v4/cmd/helm

# Releases whose documents the site has, next to those of the checkout: tags, newest first.
SITE_VERSIONS :=

.PHONY: site
site: ## Make the site of the documents in _output/site/, which needs neither a server nor a network.
	@echo "Making the site of the documents (minutes the first time, seconds later)"
	@hack/site/build.sh $(SITE_VERSIONS)

##@ Run

.PHONY: demo
demo: build ## Show the main job on a real cluster, which KEEP=1 keeps: pods get exactly the chosen devices (root, Linux).
	cd test && go run ./cmd/demo $${KEEP:+-keep}

.PHONY: demo-down
demo-down: ## Stop the cluster that "make demo" has kept, and leave nothing behind.
	cd test && KUBEDEVICE_CLUSTER_DIR=$(OUT)/demo go run ./cmd/cluster down

.PHONY: cluster-up
cluster-up: build ## Start a real cluster on this machine; kubeconfig in _output/cluster/kubeconfig (root, Linux).
	cd test && go run ./cmd/cluster up

.PHONY: cluster-down
cluster-down: ## Stop the cluster and leave nothing behind.
	cd test && go run ./cmd/cluster down

##@ Test

.PHONY: test
test: test-unit test-integration test-e2e ## Run all tests; installs what it needs.

.PHONY: test-unit
test-unit: test-page ## Unit tests and fuzz seeds of every module, with the race detector.
	$(TEST) -race ./cmd/... ./pkg/... ./plugins/... ./hack/...
	cd pkg/sdk && $(TEST) -race ./...
	cd plugins/template && $(TEST) -race ./...
	cd hack/images && $(TEST) ./...
	cd hack/release && $(TEST) ./...
	cd hack/chart && $(TEST) ./...
	cd hack/tools && $(TEST) ./...
	cd test && $(TEST) $$(go list ./... | grep -v -e /integration -e /e2e)

.PHONY: test-page
test-page: ## Types and tests of the page's own code (Node.js; elsewhere skipped, which is a failure with CI=true).
ifneq ($(NPM),)
	@$(MAKE) --no-print-directory page
	cd $(PAGE) && npm test --silent
else
	@echo "SKIPPED: test-page needs Node.js and npm"; [ "$${CI:-}" != true ]
endif

# axe-core, with which tests in a browser look for what keeps people from using a page, and uPlot, which draws boards.
FOR_BROWSER := $(if $(NPM),test/browser/node_modules/.package-lock.json)

.PHONY: test-map
test-map: binaries plugins page $(FOR_BROWSER) ## The map in Debian's Chromium, which it downloads; MAP='-rewrite' takes the docs' pictures again.
	cd test && $(TEST) ./integration/devicemap -count 1 -v -timeout 10m $${MAP:+-args $$MAP}

.PHONY: bench-map
bench-map: page ## Print how fast the map of 5,000 nodes is, in Debian's Chromium; fails above its limits.
	cd test && $(TEST) ./integration/devicemap -count 1 -v -timeout 20m -run Figures -args -nodes=5000 -limits

.PHONY: test-integration
test-integration: binaries plugins page gotestsum $(FOR_BROWSER) ## Tests against a real etcd and kube-apiserver in one process; no root.
	cd test && $(RERUN) --packages=./integration/... -- -vet=off -timeout 20m

.PHONY: test-e2e
test-e2e: build gotestsum ## Tests on the real cluster (root, Linux; elsewhere skipped, which is a failure with CI=true).
	@if [ "$$(uname)-$$(id -u)" = Linux-0 ]; then \
	  $(MAKE) --no-print-directory helm images PLATFORMS=linux/$$(go env GOHOSTARCH); \
	  $(MAKE) --no-print-directory plugin-image NAME=widget; \
	  cd test && $(RERUN) --packages=./e2e -- -vet=off -count=1 -timeout 20m; \
	  $(RERUN) --packages="$$(echo ./e2e/*/)" -- -vet=off -count=1 -timeout 20m -p 2; \
	else echo "SKIPPED: test-e2e needs root on Linux"; [ "$${CI:-}" != true ]; fi

.PHONY: test-e2e-full
test-e2e-full: build ## The tests on the real cluster that "make test" leaves out, too; E2E=chart for one package.
	@$(MAKE) --no-print-directory helm images PLATFORMS=linux/$$(go env GOHOSTARCH)
	@$(MAKE) --no-print-directory plugin-image NAME=widget
	cd test && KUBEDEVICE_E2E_FULL=true $(TEST) -v -count=1 -timeout 60m -p 1 ./e2e/$${E2E:-...}

.PHONY: gotestsum
gotestsum:
	@cd hack/tools && go build -o $(OUT)/tools/ gotest.tools/gotestsum

.PHONY: critest
critest: build ## Conformance tests of the CRI, with and without kubecri; RUNTIME=containerd-1.7 for one (root, Linux).
	cd test && go run ./cmd/critest $${RUNTIME:+--runtime=$$RUNTIME}

.PHONY: test-oracle
test-oracle: ## Placement against the brute-force oracle on 100,000 random cases; CI takes a sample.
	$(TEST) -timeout 60m ./pkg/grouptree -run Oracle -oracle.cases 100000

.PHONY: churn
churn: ## Restart schedulers and change leaders while 2,000 pods come and go on 160 devices; CI takes a sample.
	cd test && $(TEST) ./integration/scheduler -run LeadersChange -v -count 1 -timeout 30m \
	  -churn.pods=2000 -churn.nodes=20 -churn.kills=10

.PHONY: fuzz
fuzz: ## Fuzz every decoder for FUZZTIME (default 30s) each.
	hack/fuzz.sh $${FUZZTIME:-30s}

.PHONY: bench
bench: build bench-upstream ## Compare the scheduler with upstream's and with DRA; BENCH='-rounds=5 -only=DRA' for less.
	cd test && go run ./bench/scheduler $${BENCH:-}

.PHONY: bench-5000
bench-5000: build bench-upstream ## The same at 500 and 5,000 nodes.
	cd test && go run ./bench/scheduler -nodes=500,5000 -name=scheduler-5000 $${BENCH:-}

.PHONY: bench-upstream
bench-upstream:
	@echo "Building upstream's kube-scheduler"
	@go build -o $(OUT)/bench/bin/kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler

.PHONY: bench-upstream-cases
bench-upstream-cases: ## Run cases of upstream's benchmark with our plugin and without; BENCH='-only=Basic' for fewer.
	@echo "Building etcd and upstream's benchmark"
	@cd test && go build -o $(OUT)/bench/bin/etcd go.etcd.io/etcd/server/v3
	@cd test && $(TEST) -c -o $(OUT)/bench/bin/upstream-cases ./bench/upstreamcases/trial
	cd test && go run ./bench/upstreamcases $${BENCH:-}

.PHONY: bench-placement
bench-placement: build ## Benchmark placement alone and cached, and the plugin on all nodes, with a .so.
	go test -run '^$$' -bench . -benchmem ./pkg/grouptree ./pkg/cache ./pkg/scheduler/allocation
	go test -run '^$$' -bench . -benchmem ./pkg/scheduler/frameworkplugin

.PHONY: hostile
hostile: ## Look for the pods that cost the scheduler most; HOSTILE='-time=1h' for longer. Results in _output/bench/.
	cd test && go run ./bench/hostile $${HOSTILE:-}

.PHONY: hostile-tenants
hostile-tenants: build bench-upstream ## Bind pods without devices while ten tenants create the worst pods.
	cd test && go run ./bench/scheduler -tenants=10 -rounds=16 -nodes=500 -name=tenants $${BENCH:-}

.PHONY: bench-shared
bench-shared: build bench-upstream ## Count the pods that lose at the kubelet when two schedulers share nodes.
	cd test && go run ./bench/scheduler -shared-rate=50 -nodes=100 -name=shared $${BENCH:-}

.PHONY: monitoring
monitoring: build $(FOR_BROWSER) ## A real Prometheus on a cluster, alerts fire and clear; BOARDS=-pictures takes the docs' pictures.
	cd test && $(TEST) ./e2e/monitoring -v -count 1 -timeout 30m $${BOARDS:+-args $$BOARDS}

.PHONY: robustness
robustness: build ## Kill and upgrade kubecri, and kill the runtime; ROBUSTNESS=-mode=nri for NRI (root, Linux).
	cd test && go run ./cmd/robustness $${ROBUSTNESS:-}

.PHONY: nri
nri: build ## End-to-end tests of devices, restarts and vendors where kubecri is an NRI plugin (root, Linux).
	cd test && KUBEDEVICE_CLUSTER_MODE=nri $(TEST) -count=1 -timeout 60m -p 1 ./e2e \
	  ./e2e/devices ./e2e/vendors ./e2e/seals

.PHONY: containers
containers: build ## Create 2,000 random containers in both modes while kubecri is killed 50 times (root, Linux).
	cd test && $(TEST) ./e2e/containers -v -count 1 -timeout 60m -args -containers=2000 -registrations=50 -pods=110

.PHONY: claims
claims: build ## 300 pods by claims, by limits and by both come and go while programs are killed (root, Linux).
	cd test && $(TEST) ./e2e/claims -v -count 1 -timeout 90m -args -pods=300

.PHONY: enrolment
enrolment: build ## Enrol nodes 100 times, and have them leave, while pods run and programs are killed (root, Linux).
	cd test && go run ./cmd/enrolments $${ENROLMENT:-}

.PHONY: failover
failover: build ## Let 100 GPUs fail, and kill programs meanwhile; FAILURES=20 for less (root, Linux).
	cd test && $(TEST) ./e2e/failover -v -count 1 -timeout 60m -failures=$${FAILURES:-100}

.PHONY: matrix
matrix: build ## Test on Kubernetes 1.34 to 1.37 and write the table of docs/deploy/versions.md (root, Linux).
	cd test && go run ./cmd/matrix $${MATRIX:-}

.PHONY: attack
attack: build ## Attack real clusters in each known way, with and without each defence (root, Linux).
	cd test && go run ./cmd/attack $${ATTACK:-}

.PHONY: bench-proxy
bench-proxy: build ## Compare kubecri with no proxy, a copy, a re-encoder; BENCH=-against=DIR with a build (root).
	cd test && go run ./bench/proxy $${BENCH:-}

.PHONY: bench-node
bench-node: build ## Measure kubecri on a quiet node with 30 and with 110 pods; results in _output/bench/ (root, Linux).
	cd test && go run ./bench/node $${BENCH:-}

##@ Verify

.PHONY: verify
verify: ## Vet, gofmt, errcheck, staticcheck, lint, rules of the code, documents.
	hack/verify.sh $(MODULES)

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities that the code reaches; reads the database at vuln.go.dev.
	@cd hack/tools && go build -o $(OUT)/tools/ golang.org/x/vuln/cmd/govulncheck
	for module in $(MODULES); do (cd $$module && $(OUT)/tools/govulncheck ./...); done

.PHONY: check
check: verify test-unit ## What each change must pass: verify and the unit tests; under 10 minutes when warm.

.PHONY: tidy
tidy: ## Tidy every module.
	for module in $(MODULES); do (cd $$module && go mod tidy); done

.PHONY: clean
clean: cluster-down demo-down ## Stop the clusters and remove _output/.
	rm -rf $(OUT) $(PAGE)/node_modules test/browser/node_modules
	git clean -qfX $(PAGE)/dist

##@ Help

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*##"; printf "make TARGET\n"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*##/ {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
