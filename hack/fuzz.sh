#!/usr/bin/env bash
# Fuzzes every Fuzz function of every module for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
git grep -lE '^func Fuzz' -- '*_test.go' | while read -r file; do
  sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' "$file" | while read -r name; do
    echo "fuzz $name in $(dirname "$file")"
    (cd "$(dirname "$file")" && go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" .)
  done
done
