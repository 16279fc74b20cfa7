# Part of setup.sh: installs RocksDB as a shared library, because compiling its C++ costs a third of
# a cold build. The library comes from the jar that infra/rocksdb pins. If the jar has no library
# for this machine, or Maven cannot fetch the jar, the library is compiled once.
#
#   target/rocksdb/librocksdb-VERSION.so   the library; programs find it by their run path
#   target/rocksdb/link/librocksdb.so      its interface: the rocksdb_* symbols and nothing else
#
# Programs link against the interface. The prebuilt library also exports LZ4, ZSTD and others; a
# program that linked against it directly would bind to these, and the library would bind to the
# program's. The interface's SONAME is the library's file name, so a process loads neither the
# interface nor a library of another version.

rocksdb_source_seconds_max=3600

# Prints the version that infra/rocksdb pins.
rocksdb_version() {
    sed -n 's/.*rocksdbjni-\(.*\)\.jar$/\1/p' "$root/infra/rocksdb/rocksdbjni.sha256"
}

# Prints the member of the jar for this machine; nothing if a build from source is needed.
rocksdb_member() {
    getconf GNU_LIBC_VERSION >/dev/null 2>&1 || return 0
    case "$(uname -s)/$(uname -m)" in
        Linux/x86_64) echo librocksdbjni-linux64.so ;;
        Linux/aarch64) echo librocksdbjni-linux-aarch64.so ;;
    esac
}

# rocksdb_fetch MEMBER LIBRARY: extracts the library from the pinned jar.
rocksdb_fetch() {
    jars=$target/rocksdb.jars
    rm -rf "$jars"
    timeout "$maven_seconds_max" mvn -B -q -f "$root/infra/rocksdb/pom.xml" \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$jars" || return 1
    (cd "$jars" && sha256sum --check --quiet "$root/infra/rocksdb/rocksdbjni.sha256") >&2 ||
        fail "RocksDB's jar is not the one that infra/rocksdb/rocksdbjni.sha256 pins" \
            "delete ~/.m2/repository/org/rocksdb and run: make setup"
    (cd "$jars" && "$python" -m zipfile -e rocksdbjni-*.jar out) || return 1
    mv "$jars/out/$1" "$2" && rm -rf "$jars"
}

# rocksdb_compile LIBRARY: builds RocksDB and its compressors from the crate's sources.
rocksdb_compile() {
    echo "setup: compiling RocksDB ($rocksdb_reason): 15 to 25 minutes on two cores, once"
    sources=$target/rocksdb-source
    (cd "$root" && ROCKSDB_COMPILE=1 timeout "$rocksdb_source_seconds_max" cargo build --quiet \
        --locked --package forebay-shard --lib --target-dir "$sources") ||
        fail "RocksDB does not compile" "see the compiler's output above"
    built=$sources/debug/build
    c++ -shared -o "$1" \
        -Wl,--whole-archive "$built"/librocksdb-sys-*/out/librocksdb.a -Wl,--no-whole-archive \
        "$(find "$built" -name liblz4.a | head -n 1)" \
        "$(find "$built" -name libzstd.a | head -n 1)" \
        -lpthread -ldl || fail "RocksDB does not link" "see the linker's output above"
    rm -rf "$sources"
}

# rocksdb_interface LIBRARY INTERFACE: builds a library with the same rocksdb_* symbols and empty
# bodies.
rocksdb_interface() {
    nm -D --defined-only "$1" |
        awk '$2 == "T" && $3 ~ /^rocksdb_/ { print "void " $3 "(void) {}" }' |
        sort -u >"$2.c"
    [ "$(wc -l <"$2.c")" -gt 1000 ] ||
        fail "$(basename "$1") exports no C interface of RocksDB" "rm -r target/rocksdb; make setup"
    cc -shared -nostdlib -fPIC -Wl,-soname,"$(basename "$1")" -o "$2" "$2.c" ||
        fail "cannot link RocksDB's interface" "see the linker's output above"
    rm "$2.c"
}

# Creates target/rocksdb. Cargo's configuration names the interface below the tree's target folder;
# if cargo builds elsewhere, a link leads there.
prepare_rocksdb() {
    made=$target/rocksdb
    version=$(rocksdb_version)
    pins=$(cat "$folder/rocksdb.sh" "$root"/infra/rocksdb/* | cksum)
    if ! is_made "$made" "$pins"; then
        rm -rf "$made.new"
        mkdir -p "$made.new/link"
        library=$made.new/librocksdb-$version.so
        member=$(rocksdb_member)
        rocksdb_reason="no prebuilt library for $(uname -s) on $(uname -m)"
        [ -z "$member" ] || echo "setup: fetching RocksDB $version from infra/rocksdb/pom.xml"
        if [ -z "$member" ] || ! rocksdb_fetch "$member" "$library"; then
            [ -z "$member" ] || rocksdb_reason="Maven could not fetch the prebuilt library"
            rocksdb_compile "$library"
        fi
        rocksdb_interface "$library" "$made.new/link/librocksdb.so"
        # Doc tests run outside the target folder, where no run path leads to the library; cargo
        # adds the folder `link` to their library path.
        ln -s "../$(basename "$library")" "$made.new/link/"
        put_in_place "$made" "$pins"
    fi
    if [ "$target" != "$root/target" ]; then
        mkdir -p "$root/target"
        rm -rf "$root/target/rocksdb"
        ln -s "$made" "$root/target/rocksdb"
    fi
}
