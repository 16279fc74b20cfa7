"""Rules of the generated repository @crates: third-party crates that cargo has compiled."""

load("//rust:providers.bzl", "CrateInfo")

_FilesInfo = provider(
    doc = "A third-party package's artifacts and those it needs.",
    fields = {"closure": "depset of files"},
)

def _crate_files_impl(ctx):
    deps = [dep[_FilesInfo].closure for dep in ctx.attr.deps]
    return [_FilesInfo(closure = depset(ctx.files.files, transitive = deps))]

crate_files = rule(
    implementation = _crate_files_impl,
    doc = "All artifacts of one package by cargo, which may compile it for programs and macros.",
    attrs = {
        "deps": attr.label_list(providers = [_FilesInfo]),
        "files": attr.label_list(allow_files = True),
    },
)

def _crate_import_impl(ctx):
    return [
        DefaultInfo(files = depset([ctx.file.library])),
        CrateInfo(
            closure = ctx.attr.package[_FilesInfo].closure,
            compile_data = [],
            crate_features = [],
            deps = [],
            edition = "",
            is_proc_macro = ctx.file.library.extension == "so",
            library = ctx.file.library,
            name = ctx.attr.crate_name,
            root = None,
            rustc_env = {},
            srcs = [],
            version = "",
        ),
    ]

crate_import = rule(
    implementation = _crate_import_impl,
    doc = "A crate that first-party targets may depend on.",
    attrs = {
        "crate_name": attr.string(mandatory = True),
        "library": attr.label(allow_single_file = [".rlib", ".so"], mandatory = True),
        "package": attr.label(mandatory = True, providers = [_FilesInfo]),
    },
)
