"""Stand-in for rules_go: the machine's own go builds packages in a scratch copy of the module that
contains only go.mod, go.sum and the declared files. Third-party modules come from go's own cache;
each import of a third-party module or of a first-party package must be declared.
"""

load("@host_go//:host.bzl", "ENVIRONMENT", "GO", "MODULE")

GoInfo = provider(
    doc = "A Go package.",
    fields = {
        "files": "Its own files.",
        "folder": "Its folder, relative to the root.",
        "importpath": "What imports call it.",
        "imports": "The import paths that it declares.",
        "transitive": "Its files, and those of all that it imports.",
    },
)

def _info(ctx):
    files = ctx.files.srcs + ctx.files.embedsrcs
    importpath, folder = ctx.attr.importpath, ctx.label.package
    imports = [dep[GoInfo].importpath for dep in ctx.attr.deps]
    transitive = [dep[GoInfo].transitive for dep in ctx.attr.deps]
    for embedded in ctx.attr.embed:
        info = embedded[GoInfo]
        files = files + info.files
        imports = imports + info.imports
        transitive.append(info.transitive)
        importpath, folder = importpath or info.importpath, info.folder
    return GoInfo(
        files = files,
        folder = folder,
        importpath = importpath or "/".join([MODULE, folder]),
        imports = imports,
        transitive = depset(files, transitive = transitive),
    )

def _go(ctx, verb, info, output):
    inputs = depset([ctx.file._mod, ctx.file._sum], transitive = [info.transitive])
    arguments = ctx.actions.args()
    arguments.add_all([verb, GO, output.path, info.folder, info.importpath, str(ctx.label)])
    arguments.add_joined(info.imports, join_with = ",", omit_if_empty = False)
    arguments.add_all(inputs)
    ctx.actions.run(
        outputs = [output],
        inputs = inputs,
        executable = ctx.executable._go,
        arguments = [arguments],
        env = ENVIRONMENT,
        mnemonic = "HostGo",
        progress_message = "go %s %s" % (verb, ctx.label),
    )

def _library(ctx):
    info = _info(ctx)
    if not info.files:  # Third-party: go has it.
        return [info]
    built = ctx.actions.declare_file(ctx.label.name + ".built")
    _go(ctx, "check", info, built)
    return [DefaultInfo(files = depset([built])), info]

def _runfiles(ctx, files):
    runfiles = ctx.runfiles(files = files + ctx.files.data)
    for dependency in ctx.attr.data + ctx.attr.embed + ctx.attr.deps:
        runfiles = runfiles.merge(dependency[DefaultInfo].default_runfiles)
    return runfiles

def _binary(ctx):
    info = _info(ctx)
    program = ctx.actions.declare_file("%s_/%s" % (ctx.label.name, ctx.label.name))
    _go(ctx, "build", info, program)
    return [DefaultInfo(executable = program, runfiles = _runfiles(ctx, [])), info]

def _test(ctx):
    info = _info(ctx)
    program = ctx.actions.declare_file("%s_/%s" % (ctx.label.name, ctx.label.name))
    _go(ctx, "test", info, program)

    # A test runs in the folder of its package, as under go itself.
    starter = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(
        starter,
        "#!/bin/sh\nprogram=$PWD/%s\ncd './%s' && exec \"$program\" \"$@\"\n" % (
            program.short_path,
            ctx.attr.rundir or ctx.label.package,
        ),
        is_executable = True,
    )
    return [DefaultInfo(executable = starter, runfiles = _runfiles(ctx, [program])), info]

_ATTRIBUTES = {
    "data": attr.label_list(doc = "Files that it reads when it runs.", allow_files = True),
    "deps": attr.label_list(doc = "What it imports.", providers = [GoInfo]),
    "embed": attr.label_list(doc = "Libraries of the same package.", providers = [GoInfo]),
    "embedsrcs": attr.label_list(doc = "Files for go:embed.", allow_files = True),
    "importpath": attr.string(doc = "What imports call it."),
    "srcs": attr.label_list(doc = "Its files.", allow_files = [".go"]),
    "_go": attr.label(default = "//go:host_go", cfg = "host", executable = True),
    "_mod": attr.label(default = "@//:go.mod", allow_single_file = True),
    "_sum": attr.label(default = "@//:go.sum", allow_single_file = True),
}

go_library = rule(_library, attrs = _ATTRIBUTES)

go_binary = rule(_binary, attrs = _ATTRIBUTES, executable = True)

go_test = rule(
    _test,
    attrs = dict(_ATTRIBUTES, rundir = attr.string(doc = "Where it runs, if not in its package.")),
    test = True,
)
