#!/bin/sh
# Builds one Go package from the declared files alone:
#   host_go.sh check|build|test GO OUTPUT FOLDER IMPORTPATH LABEL DECLARED,IMPORTS FILE...
set -eu

verb=$1 go=$2 output=$PWD/$3 folder=$4 importpath=$5 label=$6 declared=,$7,
shift 7

fail() {
    echo "$label: $1" >&2
    exit 1
}

module=$(mktemp -d)
trap 'rm -rf "$module"' EXIT
for file in "$@"; do
    mkdir -p "$module/$(dirname "$file")"
    cp -L "$file" "$module/$file"
done
cd "$module"

# Everything imported must be declared, unless it comes with go. Go itself would be content with
# whatever another package has brought.
imports='{{join .Imports "\n"}}'
if [ "$verb" = test ]; then
    imports="$imports"'{{"\n"}}{{join .TestImports "\n"}}{{"\n"}}{{join .XTestImports "\n"}}'
fi
named=$("$go" list -e -find -f '{{.ImportPath}}' "./$folder")
[ "$named" = "$importpath" ] || fail "its importpath is $named, not $importpath"
imported=$("$go" list -e -f "$imports" "./$folder" | sort -u)
[ -z "$imported" ] ||
    # shellcheck disable=SC2086  # One word for each import path, which has no spaces.
    imported=$("$go" list -e -find -f '{{if not .Standard}}{{.ImportPath}}{{end}}' $imported)
for path in $imported; do
    case $declared in
    *",$path,"*) continue ;;
    esac
    [ "$path" = "$importpath" ] || fail "it imports $path, which its deps do not name"
done

case $verb in
check) "$go" build "./$folder" && : >"$output" ;;
build) "$go" build -o "$output" "./$folder" ;;
test) "$go" test -c -o "$output" "./$folder" && [ -s "$output" ] || fail "it has no tests" ;;
esac
