"""A C or C++ library that the system's package manager installed: headers and static archives.

When it is not there the repository gets a stub instead: everything else still builds, and what
needs the library fails with the line to type.
"""

_INCLUDE_DIRS = ["/usr/local/include", "/usr/include"]

_FOUND = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "{name}",
    srcs = {archives},
    hdrs = {headers},
    includes = ["include"],
    linkopts = {linkopts},
)
"""

_MISSING = """
package(default_visibility = ["//visibility:public"])

genrule(
    name = "missing",
    outs = ["missing.h"],
    cmd = "echo >&2 'ERROR: {name} is not installed. Run: apt-get install {debian_package}'; exit 1",
)

cc_library(
    name = "{name}",
    hdrs = ["missing.h"],
)
"""

def _first_existing(ctx, dirs, names):
    """Returns {name: path} from the first of `dirs` that has all of `names`, else None."""
    for directory in dirs:
        found = {name: ctx.path(directory + "/" + name) for name in names}
        if all([path.exists for path in found.values()]):
            return found
    return None

def _library_dirs(ctx):
    """Where the compiler's linker looks, so that any distribution's multiarch folder is found."""
    compiler = ctx.os.environ.get("CC") or "gcc"
    result = ctx.execute([compiler, "-print-multiarch"])
    multiarch = result.stdout.strip() if result.return_code == 0 else ""
    dirs = ["/usr/local/lib", "/usr/lib64", "/usr/lib"]
    return ["/usr/lib/" + multiarch] + dirs if multiarch else dirs

def system_library(ctx, name, headers, archives, debian_package, linkopts = []):
    """Writes the BUILD file of a repository with one target of the same name.

    Args:
      ctx: the repository rule's context.
      name: name of the cc_library, e.g. "sodium".
      headers: files or folders under an include folder; a folder is taken whole.
      archives: static libraries, in link order, e.g. ["libsodium.a"].
      debian_package: what installs it, for the message of the stub.
      linkopts: what the archives need besides.
    """
    found_headers = _first_existing(ctx, _INCLUDE_DIRS, headers)
    found_archives = _first_existing(ctx, _library_dirs(ctx), archives)
    if not found_headers or not found_archives:
        ctx.file("BUILD", _MISSING.format(name = name, debian_package = debian_package))
        return
    for header, path in found_headers.items():
        ctx.symlink(path, "include/" + header)
    for archive, path in found_archives.items():
        ctx.symlink(path, archive)
    ctx.file("BUILD", _FOUND.format(
        name = name,
        archives = repr(archives),
        headers = repr(["include/" + header for header in headers]),
        linkopts = repr(linkopts),
    ))
