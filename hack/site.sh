#!/usr/bin/env bash
# make site: hack/site.sh FOLDER builds the documentation site into the folder.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ $# -eq 1 ]] || die "usage: hack/site.sh FOLDER"
out=$(realpath --canonicalize-missing "$1")
mermaid=$BIN/mermaid/node_modules/@mermaid-js/tiny

"$BIN/hugo" build --source site --destination "$out" --cleanDestinationDir --noBuildLock --panicOnWarning --quiet
cp "$mermaid/dist/mermaid.tiny.js" "$out/mermaid.js"
cp "$mermaid/LICENSE" "$out/mermaid-license.txt"
say "the site is in $out: $(find "$out" -name '*.html' | wc -l) pages"
