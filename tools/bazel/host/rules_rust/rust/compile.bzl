"""An action of rustc: declared sources and dependencies in, one file out."""

load("@host//:host.bzl", "OPT_LEVELS", "PATH", "RUSTC", "RUSTFLAGS")
load("//rust:providers.bzl", "BuildScriptInfo", "CrateInfo")

# Attributes of every rule that compiles, with the names of rules_rust.
COMPILE_ATTRIBUTES = {
    "aliases": attr.label_keyed_string_dict(),
    "compile_data": attr.label_list(allow_files = True),
    "crate_features": attr.string_list(),
    "crate_name": attr.string(),
    "crate_root": attr.label(allow_single_file = [".rs"]),
    "data": attr.label_list(allow_files = True),
    "deps": attr.label_list(providers = [[CrateInfo], [BuildScriptInfo]]),
    "edition": attr.string(),
    "proc_macro_deps": attr.label_list(providers = [CrateInfo]),
    "rustc_env": attr.string_dict(),
    "rustc_flags": attr.string_list(),
    "srcs": attr.label_list(allow_files = [".rs"]),
    "version": attr.string(default = "0.0.0"),
    "_rustc": attr.label(default = "//rust:rustc", executable = True, cfg = "host"),
}

def crate_name(ctx):
    """The crate's name: given, or the target's with underscores."""
    return ctx.attr.crate_name or ctx.label.name.replace("-", "_")

def fingerprint(ctx):
    """A number that distinguishes this target's crate from others of the same name."""
    number = hash(str(ctx.label))
    return str(number if number >= 0 else -number)

def crate_root(ctx, default):
    """The root file of the crate, found as rules_rust finds it."""
    if ctx.file.crate_root:
        return ctx.file.crate_root
    if len(ctx.files.srcs) == 1:
        return ctx.files.srcs[0]
    for name in [default, ctx.label.name + ".rs", crate_name(ctx) + ".rs"]:
        found = [file for file in ctx.files.srcs if file.basename == name]
        if found:
            return sorted(found, key = _depth)[0]
    fail("%s: no crate root among srcs; name it with crate_root" % ctx.label)

def _depth(file):
    return len(file.path)

def expand(ctx, values):
    """Values with $(rootpath ...) and similar variables expanded."""
    targets = {target.label: target for target in ctx.attr.data + ctx.attr.compile_data}.values()
    return {name: ctx.expand_location(value, targets) for name, value in values.items()}

def check_deps(ctx):
    """Fails where rules_rust fails: for a macro in deps, or a library in proc_macro_deps."""
    for dep in ctx.attr.deps:
        if CrateInfo in dep and dep[CrateInfo].is_proc_macro:
            fail("%s: %s in deps is a macro; move it to proc_macro_deps" % (ctx.label, dep.label))
    for dep in ctx.attr.proc_macro_deps:
        if not dep[CrateInfo].is_proc_macro:
            fail("%s: %s in proc_macro_deps is no macro; move it to deps" % (ctx.label, dep.label))

def closure_of(deps):
    """The files that are needed to link with these targets."""
    return depset(transitive = [dep[CrateInfo].closure for dep in deps if CrateInfo in dep])

def _opt_level(ctx):
    """The optimisation of a target: 0, or with `-c opt` that of its package in cargo."""
    if ctx.var["COMPILATION_MODE"] != "opt":
        return 0
    parts = ctx.label.package.split("/")
    for count in range(len(parts), 0, -1):
        folder = "/".join(parts[:count])
        if folder in OPT_LEVELS:
            return OPT_LEVELS[folder]
    return 0

def _environment(ctx, name, version, rustc_env):
    numbers = version.split("-")[0].split(".") + ["", "", ""]
    environment = {
        "CARGO_CRATE_NAME": name,
        "CARGO_PKG_NAME": ctx.label.name,
        "CARGO_PKG_VERSION": version,
        "CARGO_PKG_VERSION_MAJOR": numbers[0],
        "CARGO_PKG_VERSION_MINOR": numbers[1],
        "CARGO_PKG_VERSION_PATCH": numbers[2],
        "PATH": PATH,
    }
    environment.update(rustc_env)
    return environment

def _folder(file):
    return file.dirname

def compile(ctx, output, crate, flags):
    """Compiles one crate.

    Args:
      ctx: the rule's context, whose attributes include COMPILE_ATTRIBUTES
      output: the file to write
      crate: struct with name, root, srcs, deps, edition, crate_features, compile_data, rustc_env,
        version and aliases (label to name)
      flags: the kind of crate, as arguments of rustc
    """
    scripts = [dep[BuildScriptInfo] for dep in crate.deps if BuildScriptInfo in dep]
    if len(scripts) > 1:
        fail("%s: more than one build script in deps" % ctx.label)
    closure = closure_of(crate.deps)
    arguments = ctx.actions.args()
    arguments.add(ctx.label.package)
    arguments.add(scripts[0].output.path if scripts else "")
    arguments.add(RUSTC)
    arguments.add(crate.root)
    arguments.add("--crate-name=" + crate.name)
    arguments.add("--edition=" + (crate.edition or "2021"))
    arguments.add(output, format = "--emit=link=%s")
    arguments.add("-Cmetadata=" + fingerprint(ctx))
    arguments.add("-Copt-level=%s" % _opt_level(ctx))
    arguments.add_all(["-Cdebug-assertions=on", "-Cdebuginfo=0", "-Cembed-bitcode=no"])
    arguments.add_all(RUSTFLAGS)
    arguments.add_all(flags)
    for dep in crate.deps:
        if CrateInfo in dep:
            name = crate.aliases.get(dep.label, dep[CrateInfo].name)
            arguments.add("--extern=%s=%s" % (name, dep[CrateInfo].library.path))
    arguments.add_all(closure, map_each = _folder, uniquify = True, format_each = "-Ldependency=%s")
    arguments.add_all(crate.crate_features, format_each = "--cfg=feature=\"%s\"")
    arguments.add_all(expand(ctx, {flag: flag for flag in ctx.attr.rustc_flags}).values())
    ctx.actions.run(
        executable = ctx.executable._rustc,
        arguments = [arguments],
        inputs = depset(
            crate.srcs + crate.compile_data + [script.output for script in scripts],
            transitive = [closure],
        ),
        outputs = [output],
        env = _environment(ctx, crate.name, crate.version, crate.rustc_env),
        mnemonic = "HostRustc",
        progress_message = "Compiling Rust %s" % ctx.label,
    )
