#!/usr/bin/env bash
# Checks every module that is named: gofmt, go vet, staticcheck, tidy go.mod files; then the documents.
# Rules of the code (imports point one way, packages are documented) are Go tests in hack/rules.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
  echo "gofmt would change:"; echo "$unformatted"; echo "run: gofmt -w ."
  exit 1
fi

staticcheck=$PWD/_output/tools/staticcheck
(cd hack/tools && go build -o "$staticcheck" honnef.co/go/tools/cmd/staticcheck)

for module in "$@"; do
  echo "verify $module"
  (
    cd "$module"
    go mod tidy -diff
    go vet ./...
    "$staticcheck" ./...
  )
done

go test ./hack/rules
echo "verified"
