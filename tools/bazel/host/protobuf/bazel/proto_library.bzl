"""Stand-in for protobuf's proto_library: protoc compiles the declared files to a descriptor set."""

ProtoInfo = provider(
    doc = "What importing targets need.",
    fields = {
        "sources": "depset of the .proto files, transitive",
        "roots": "depset of the folders that imports are relative to, transitive",
    },
)

def _proto_library_impl(ctx):
    infos = [dep[ProtoInfo] for dep in ctx.attr.deps]
    sources = depset(ctx.files.srcs, transitive = [info.sources for info in infos])
    own_root = ctx.attr.strip_import_prefix.strip("/") or "."
    roots = depset([own_root], transitive = [info.roots for info in infos])
    descriptors = ctx.actions.declare_file(ctx.label.name + "-descriptor-set.proto.bin")
    if ctx.files.srcs:
        arguments = ctx.actions.args()
        arguments.add_all(roots, format_each = "-I%s")
        arguments.add(descriptors, format = "--descriptor_set_out=%s")
        arguments.add_all(ctx.files.srcs)
        ctx.actions.run(
            executable = ctx.executable._protoc,
            arguments = [arguments],
            inputs = sources,
            outputs = [descriptors],
            mnemonic = "HostProtoc",
            use_default_shell_env = True,
        )
    else:
        ctx.actions.write(descriptors, "")
    return [
        DefaultInfo(files = depset([descriptors])),
        ProtoInfo(sources = sources, roots = roots),
    ]

proto_library = rule(
    implementation = _proto_library_impl,
    attrs = {
        "deps": attr.label_list(providers = [ProtoInfo]),
        "import_prefix": attr.string(),
        "srcs": attr.label_list(allow_files = [".proto"]),
        "strip_import_prefix": attr.string(),
        "_protoc": attr.label(default = "//:protoc", executable = True, cfg = "host"),
    },
)
