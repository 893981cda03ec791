#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# format_self_test.sh LINT: scripts/lint --format must find a badly formatted file, and only that.
set -euo pipefail
lint=${1:?usage: format_self_test.sh LINT}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$(dirname "$lint")/../.clang-format" "$folder"
printf 'int good() { return 1; }\n' >"$folder/good.cc"
printf 'int  bad( ){return 1;}\n' >"$folder/bad.cc"

"$lint" --format "$folder/good.cc" || { echo "refused a well formatted file"; exit 1; }
if output=$("$lint" --format "$folder/good.cc" "$folder/bad.cc"); then
  echo "accepted a badly formatted file: $output"
  exit 1
fi
[[ $output == *"clang-format -i $folder/bad.cc" ]] || { echo "does not say what to do: $output"; exit 1; }
echo "the format check works"
