"""The providers of Rust targets."""

CrateInfo = provider(
    doc = "A crate that others may name.",
    fields = {
        "closure": "depset of the files that linking it needs, its own included",
        "compile_data": "files that its macros read at compile time",
        "crate_features": "cargo features it was compiled with",
        "deps": "its direct dependencies, as targets",
        "edition": "Rust edition",
        "is_proc_macro": "whether it is a macro, which runs inside rustc",
        "library": "the file that --extern names",
        "name": "crate name",
        "root": "the source file that rustc begins with",
        "rustc_env": "environment of its compilation, expanded",
        "srcs": "its source files",
        "version": "version, for CARGO_PKG_VERSION",
    },
)

BuildScriptInfo = provider(
    doc = "The outputs of a build script.",
    fields = {"output": "folder with `out` (OUT_DIR) and `flags` (for rustc.sh)"},
)
