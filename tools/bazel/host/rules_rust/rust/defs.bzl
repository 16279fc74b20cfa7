"""Stand-in for rules_rust: the same names and attributes, run with the machine's own rustc.

The rules compile first-party crates in the sandbox, from only their declared sources and
dependencies. Third-party crates are files that cargo has built, one target @crates//:NAME each.
"""

load("@host//:host.bzl", "PATH", "RUSTDOC", "RUSTFLAGS")
load(
    "//rust:compile.bzl",
    "COMPILE_ATTRIBUTES",
    "check_deps",
    "closure_of",
    "compile",
    "crate_name",
    "crate_root",
    "expand",
    "fingerprint",
)
load("//rust:providers.bzl", "BuildScriptInfo", "CrateInfo")

def _aliases(ctx):
    return {target.label: name for target, name in ctx.attr.aliases.items()}

def _own_crate(ctx, root):
    return struct(
        aliases = _aliases(ctx),
        compile_data = ctx.files.compile_data + ctx.files.data,
        crate_features = ctx.attr.crate_features,
        deps = ctx.attr.deps + ctx.attr.proc_macro_deps,
        edition = ctx.attr.edition,
        name = crate_name(ctx),
        root = root,
        rustc_env = expand(ctx, ctx.attr.rustc_env),
        srcs = ctx.files.srcs,
        version = ctx.attr.version,
    )

def _runfiles(ctx):
    runfiles = ctx.runfiles(files = ctx.files.data)
    for target in ctx.attr.data:
        runfiles = runfiles.merge(target[DefaultInfo].default_runfiles)
    return runfiles

def _library_impl(ctx):
    check_deps(ctx)
    crate = _own_crate(ctx, crate_root(ctx, "lib.rs"))
    kind, extension = ctx.attr._kind
    linked_by_rustc = kind in ["rlib", "proc-macro"]
    suffix = "-%s" % fingerprint(ctx) if linked_by_rustc else ""
    output = ctx.actions.declare_file("lib%s%s.%s" % (crate.name, suffix, extension))
    compile(ctx, output, crate, ["--crate-type=" + kind])
    default = DefaultInfo(files = depset([output]), runfiles = _runfiles(ctx))
    if not linked_by_rustc:
        return [default]
    is_proc_macro = kind == "proc-macro"
    closure = depset([output], transitive = [] if is_proc_macro else [closure_of(crate.deps)])
    return [default, CrateInfo(
        closure = closure,
        compile_data = crate.compile_data,
        crate_features = crate.crate_features,
        deps = crate.deps,
        edition = crate.edition,
        is_proc_macro = is_proc_macro,
        library = output,
        name = crate.name,
        root = crate.root,
        rustc_env = crate.rustc_env,
        srcs = crate.srcs,
        version = crate.version,
    )]

def _binary_impl(ctx):
    check_deps(ctx)
    output = ctx.actions.declare_file(ctx.attr.binary_name or ctx.label.name)
    compile(ctx, output, _own_crate(ctx, crate_root(ctx, "main.rs")), ["--crate-type=bin"])
    return [DefaultInfo(
        executable = output,
        files = depset([output]),
        runfiles = _runfiles(ctx),
    )]

def _tested_crate(ctx):
    """The crate under test with the test's own additions."""
    if ctx.files.srcs or ctx.file.crate_root:
        fail("%s: crate excludes srcs and crate_root" % ctx.label)
    tested = ctx.attr.crate[CrateInfo]
    rustc_env = dict(tested.rustc_env)
    rustc_env.update(expand(ctx, ctx.attr.rustc_env))
    return struct(
        aliases = _aliases(ctx),
        compile_data = tested.compile_data + ctx.files.compile_data + ctx.files.data,
        crate_features = tested.crate_features + ctx.attr.crate_features,
        deps = tested.deps + ctx.attr.deps + ctx.attr.proc_macro_deps,
        edition = tested.edition,
        name = tested.name,
        root = tested.root,
        rustc_env = rustc_env,
        srcs = tested.srcs,
        version = tested.version,
    )

def _test_impl(ctx):
    check_deps(ctx)
    output = ctx.actions.declare_file(ctx.label.name)
    crate = _tested_crate(ctx) if ctx.attr.crate else _own_crate(ctx, crate_root(ctx, "lib.rs"))
    compile(ctx, output, crate, ["--test"])
    return [
        DefaultInfo(executable = output, files = depset([output]), runfiles = _runfiles(ctx)),
        testing.TestEnvironment(expand(ctx, ctx.attr.env)),
    ]

_DOC_TEST = """#!/bin/sh
# Runs the documentation tests of a crate, in the runfiles.
PATH='{path}' exec {command}
"""

def _doc_test_impl(ctx):
    tested = ctx.attr.crate[CrateInfo]
    deps = [ctx.attr.crate] + tested.deps + ctx.attr.deps + ctx.attr.proc_macro_deps
    closure = closure_of(deps)
    outputs = [dep[BuildScriptInfo].output for dep in deps if BuildScriptInfo in dep]
    command = [
        ctx.executable._rustc.short_path,
        ctx.attr.crate.label.package,
        outputs[0].short_path if outputs else "",
        RUSTDOC,
        "--test",
        tested.root.short_path,
        "--crate-name=" + tested.name,
        "--edition=" + (tested.edition or "2021"),
    ]
    command += RUSTFLAGS + ctx.attr.rustdoc_flags
    for feature in tested.crate_features + ctx.attr.crate_features:
        command.append("--cfg=feature=\"%s\"" % feature)
    for dep in deps:
        if CrateInfo in dep:
            info = dep[CrateInfo]
            command.append("--extern=%s=%s" % (info.name, info.library.short_path))
    for folder in {file.short_path.rpartition("/")[0]: None for file in closure.to_list()}:
        command.append("-Ldependency=" + folder)
    script = ctx.actions.declare_file(ctx.label.name)
    quoted = " ".join(["'%s'" % argument for argument in command])
    text = _DOC_TEST.format(command = quoted, path = PATH)
    ctx.actions.write(script, text, is_executable = True)
    runfiles = ctx.runfiles(
        files = tested.srcs + tested.compile_data + outputs + [ctx.executable._rustc],
        transitive_files = closure,
    )
    return [DefaultInfo(executable = script, runfiles = runfiles)]

def _with(**attributes):
    return dict(COMPILE_ATTRIBUTES, **attributes)

rust_library = rule(
    implementation = _library_impl,
    attrs = _with(_kind = attr.string_list(default = ["rlib", "rlib"])),
)

rust_proc_macro = rule(
    implementation = _library_impl,
    attrs = _with(_kind = attr.string_list(default = ["proc-macro", "so"])),
)

rust_shared_library = rule(
    implementation = _library_impl,
    attrs = _with(_kind = attr.string_list(default = ["cdylib", "so"])),
)

rust_static_library = rule(
    implementation = _library_impl,
    attrs = _with(_kind = attr.string_list(default = ["staticlib", "a"])),
)

rust_binary = rule(
    implementation = _binary_impl,
    attrs = _with(binary_name = attr.string(), env = attr.string_dict()),
    executable = True,
)

rust_test = rule(
    implementation = _test_impl,
    attrs = _with(
        crate = attr.label(providers = [CrateInfo]),
        env = attr.string_dict(),
    ),
    test = True,
)

rust_doc_test = rule(
    implementation = _doc_test_impl,
    attrs = {
        "crate": attr.label(mandatory = True, providers = [CrateInfo]),
        "crate_features": attr.string_list(),
        "deps": attr.label_list(providers = [CrateInfo]),
        "proc_macro_deps": attr.label_list(providers = [CrateInfo]),
        "rustdoc_flags": attr.string_list(),
        "_rustc": attr.label(default = "//rust:rustc", executable = True, cfg = "host"),
    },
    test = True,
)
