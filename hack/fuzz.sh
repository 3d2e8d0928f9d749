#!/usr/bin/env bash
# Fuzzes every Fuzz function of the root module for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
git grep -lE '^func Fuzz' -- 'pkg/*_test.go' | while read -r file; do
  grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | awk '{print $2}' | while read -r name; do
    echo "fuzz $name in $(dirname "$file")"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" "./$(dirname "$file")"
  done
done
