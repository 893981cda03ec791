#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# doc_links_self_test.sh: doc_links.sh must find each kind of broken reference, and only those.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/docs"
printf '# Top\n\n[a](docs/a.md#the-end) [web](https://example.org/x.md)\n' >"$tree/README.md"
printf '## The end\n\n[up](../README.md#top) [here](#the-end)\n' >"$tree/docs/a.md"
echo '// see docs/a.md' >"$tree/a.h"
"$here/doc_links.sh" "$tree" || { echo "refused a tree without faults"; exit 1; }

expect_refused() { # FILE LINE
  cp "$tree/$1" "$tree/saved"
  echo "$2" >>"$tree/$1"
  if "$here/doc_links.sh" "$tree" >/dev/null; then
    echo "accepted '$2' in $1"
    exit 1
  fi
  mv "$tree/saved" "$tree/$1"
}
expect_refused README.md '[gone](docs/gone.md)'
expect_refused README.md '[no heading](docs/a.md#middle)'
expect_refused docs/a.md '[no heading](#middle)'
expect_refused a.h '// see docs/gone.md'
echo "the link check works"
