"""Stand-in for rules_rust's cargo_build_script: compiled by rustc, run with its declared data."""

load("@host//:host.bzl", "PATH", "PYTHON", "RUSTC", "TRIPLE")
load("//rust:compile.bzl", "COMPILE_ATTRIBUTES", "check_deps", "compile")
load("//rust:providers.bzl", "BuildScriptInfo")

def _cargo_build_script_impl(ctx):
    check_deps(ctx)
    program = ctx.actions.declare_file(ctx.label.name + "_program")
    crate = struct(
        aliases = {target.label: name for target, name in ctx.attr.aliases.items()},
        compile_data = ctx.files.compile_data,
        crate_features = ctx.attr.crate_features,
        deps = ctx.attr.deps + ctx.attr.proc_macro_deps,
        edition = ctx.attr.edition,
        name = "build_script_build",
        root = ctx.file.crate_root or ctx.files.srcs[0],
        rustc_env = ctx.attr.rustc_env,
        srcs = ctx.files.srcs,
        version = ctx.attr.version,
    )
    compile(ctx, program, crate, ["--crate-type=bin"])
    output = ctx.actions.declare_directory(ctx.label.name + ".output")
    environment = {"PATH": PATH, "RUSTC": RUSTC, "HOST": TRIPLE, "TARGET": TRIPLE}
    for feature in ctx.attr.crate_features:
        environment["CARGO_FEATURE_" + feature.upper().replace("-", "_")] = "1"
    for name, value in ctx.attr.build_script_env.items():
        value = value.replace("$(execpath ", "${pwd}/$(execpath ")
        environment[name] = ctx.expand_location(value, ctx.attr.data + ctx.attr.tools)
    ctx.actions.run(
        executable = PYTHON,
        arguments = [ctx.file._run.path, program.path, output.path, ctx.label.package],
        inputs = [ctx.file._run, program] + ctx.files.data,
        tools = ctx.files.tools,
        outputs = [output],
        env = environment,
        mnemonic = "HostBuildScript",
        progress_message = "Running build script %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([output])), BuildScriptInfo(output = output)]

cargo_build_script = rule(
    implementation = _cargo_build_script_impl,
    attrs = dict(
        COMPILE_ATTRIBUTES,
        build_script_env = attr.string_dict(),
        pkg_name = attr.string(),
        tools = attr.label_list(allow_files = True),
        _run = attr.label(default = "//cargo:run_build_script.py", allow_single_file = True),
    ),
)
