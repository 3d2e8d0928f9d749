#!/usr/bin/env bash
# Checks every module that is named: gofmt, tidy go.mod files, go vet, revive; then the rules of the code and the documents.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
  echo "gofmt would change:"; echo "$unformatted"; echo "run: gofmt -w ."
  exit 1
fi

revive=$PWD/_output/tools/revive
(cd hack/tools && go build -o "$revive" github.com/mgechev/revive)

config=$PWD/hack/tools/revive.toml
for module in "$@"; do
  echo "verify $module"
  (
    cd "$module"
    go mod tidy -diff
    go vet ./...
    "$revive" -set_exit_status -config "$config" -formatter friendly ./...
  )
done

go test ./hack/rules
echo "verified"
