"""All jars that programs of other targets need on their class path, as files."""

load("@rules_java//java/common:java_info.bzl", "JavaInfo")

def _runtime_jars_impl(ctx):
    jars = depset(transitive = [dep[JavaInfo].transitive_runtime_jars for dep in ctx.attr.deps])
    return [DefaultInfo(files = jars, runfiles = ctx.runfiles(transitive_files = jars))]

runtime_jars = rule(
    implementation = _runtime_jars_impl,
    doc = "The jars of libraries and of everything they need: `$(rootpaths)` names each of them.",
    attrs = {"deps": attr.label_list(doc = "The libraries.", providers = [JavaInfo])},
)
