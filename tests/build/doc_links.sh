#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# doc_links.sh TREE: every relative link of the documents names a file that exists and, after '#', a
# heading of it; sources name only documents that exist.
# Prints every violation as file: link and exits 1 if there is one.
set -euo pipefail
cd "${1:?usage: doc_links.sh TREE}"
shopt -s nullglob
violations=0
report() { echo "$1"; violations=$((violations + 1)); }

# The anchors of a document as GitHub and GitLab build them.
anchors() {
  sed -nE 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^[:alnum:] _-]//g; s/ /-/g'
}

for file in *.md docs/*.md; do
  while IFS= read -r link; do
    [[ $link == *://* ]] && continue
    path=${link%%#*} anchor=''
    [[ $link == *'#'* ]] && anchor=${link#*#}
    if [ -z "$path" ]; then path=$file; else path=$(dirname "$file")/$path; fi
    if [ ! -e "$path" ]; then
      report "$file: $link does not exist"
    elif [ -n "$anchor" ] && ! anchors "$path" | grep -qxF -- "$anchor"; then
      report "$file: $link: no such heading"
    fi
  done < <(grep -oE '\]\([^) ]+\)' "$file" | sed 's/^](//; s/)$//')
done

while IFS=: read -r file document; do
  [ -f "$document" ] || report "$file: $document does not exist"
done < <(grep -roE --include='*.h' --include='*.cc' --include='*.sh' --include='*.example' \
           --include=CMakeLists.txt --exclude-dir=build --exclude-dir=.git 'docs/[a-z-]+\.md' . |
         sort -u)

if [ "$violations" -gt 0 ]; then
  echo "$violations broken reference(s)"
  exit 1
fi
echo "every link leads somewhere"
