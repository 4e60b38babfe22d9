"""How every C++ target of this project is compiled: one place for the flags."""

# -ffp-contract=off: a fused multiply-add rounds once instead of twice, so results would depend on
# the code path taken; ranks must agree to the bit.
# -fvisibility=hidden: what leaves a shared object is marked HVD_EXPORT.
HVD_COPTS = [
    "-std=c++17",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-pthread",
] + select({
    "//tf_ops:opt": ["-O3"],
    "//conditions:default": [],
})

def hvd_cc_library(name, copts = [], linkopts = [], **kwargs):
    """A cc_library with the house flags, linked statically into what uses it.

    Args:
      name: name of the target.
      copts: flags after the house's.
      linkopts: flags after the house's.
      **kwargs: passed to cc_library.
    """
    native.cc_library(
        name = name,
        copts = HVD_COPTS + copts,
        linkopts = ["-pthread"] + linkopts,
        linkstatic = True,
        **kwargs
    )

def hvd_shared_object(name, version_script, link_with = [], linkopts = [], copts = [], **kwargs):
    """A shared object that exports what its version script lists, and nothing else.

    It is linked by the soname `name`, so it can be found beside its users wherever they are installed.

    Args:
      name: file name, e.g. "libx.so".
      version_script: label of the linker's version script.
      link_with: labels of shared objects that become NEEDED entries by their sonames.
      linkopts: flags after the house's.
      copts: flags after the house's.
      **kwargs: passed to cc_binary.
    """
    native.cc_binary(
        name = name,
        additional_linker_inputs = [version_script] + link_with,
        copts = HVD_COPTS + copts,
        linkopts = [
            "-pthread",
            "-Wl,-soname," + name,
            "-Wl,-z,defs",
            "-Wl,--version-script=$(location %s)" % version_script,
        ] + ["$(location %s)" % label for label in link_with] + linkopts,
        linkshared = True,
        linkstatic = True,
        **kwargs
    )

def hvd_cc_tests(deps, medium = []):
    """One test per *_test.cc in the folder; its other C++ files are helpers that all tests may use.

    Args:
      deps: what the tests exercise.
      medium: names, without ".cc", of tests that may take up to five minutes; others have one.
    """
    helpers = native.glob(["*.cc"], exclude = ["*_test.cc"], allow_empty = True)
    helper_headers = native.glob(["*.h"], allow_empty = True)
    helper_deps = []
    if helpers or helper_headers:
        hvd_cc_library(
            name = "helpers",
            testonly = True,
            visibility = ["//tests:__subpackages__"],
            srcs = helpers,
            hdrs = helper_headers,
            deps = deps + ["@gtest"],
        )
        helper_deps = [":helpers"]
    for source in native.glob(["*_test.cc"], allow_empty = True):
        name = source[:-len(".cc")]
        native.cc_test(
            name = name,
            size = "medium" if name in medium else "small",
            srcs = [source],
            # A test is not worth the time that -O3 takes.
            copts = HVD_COPTS + ["-O1"],
            linkopts = ["-pthread"],
            linkstatic = True,
            deps = deps + helper_deps + ["@gtest"],
        )
