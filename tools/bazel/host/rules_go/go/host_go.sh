#!/bin/sh
# Builds one Go package from only the declared files:
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

# Every import must be declared, unless it is of go's standard library. Go itself would also accept
# the dependencies of other packages.
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
