#!/usr/bin/env bash
# Checks every module that is named: gofmt, tidy go.mod files, go vet, errcheck, staticcheck, revive; then the systemd
# units, where systemd is there (at most 4.0 of exposure, on its scale from 0 to 10), the rules of the code and the
# documents.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
  echo "gofmt would change:"; echo "$unformatted"; echo "run: gofmt -w ."
  exit 1
fi

tools=$PWD/_output/tools
(
  cd hack/tools
  go build -o "$tools/" github.com/mgechev/revive honnef.co/go/tools/cmd/staticcheck ./errcheck
)

config=$PWD/hack/tools/revive.toml
for module in "$@"; do
  echo "verify $module"
  (
    cd "$module"
    go mod tidy -diff
    go vet ./...
    go vet -vettool="$tools/errcheck" ./...
    # It analyses all that a module imports: of the tests and of Helm for minutes. revive has ST1005, and knows names.
    if [ "$module" != test ] && [ "$module" != hack/chart ]; then
      "$tools/staticcheck" -checks=inherit,-ST1005 ./...
    fi
    "$tools/revive" -set_exit_status -config "$config" -formatter friendly ./...
  )
done

if command -v systemd-analyze >/dev/null; then
  echo "verify deploy/systemd"
  units=$(mktemp -d)
  trap 'rm -r "$units"' EXIT
  cp deploy/systemd/kubecri.socket "$units"
  for service in kubecri.service kubedevice-scheduler.service; do
    # The program need not be installed here.
    sed 's#^ExecStart=[^ ]*#ExecStart=/bin/true#' deploy/systemd/$service >"$units/$service"
  done
  systemd-analyze verify --man=no "$units"/*
  for service in "$units"/*.service; do
    systemd-analyze security --no-pager --offline=true --threshold=40 "$service" | tail -1
  done
fi

go test ./hack/rules
echo "verified"
