"""TensorFlow as a Python interpreter imports it: its headers, its library and its flags.

The interpreter is PYTHON_BIN_PATH, else .venv/bin/python, else python3 on the path. Flags are asked of TensorFlow, never guessed. @tf//:tf_info.bzl has TF_VERSION ("2.15.1") and
TF_COPTS (the C++ standard it was built with).
"""

_PROBE = """
import json, os, re
import tensorflow as tf
root = os.path.dirname(tf.__file__)
pattern = re.compile(r"libtensorflow_framework[.]so[.][0-9]+$")
flags = tf.sysconfig.get_compile_flags()
print(json.dumps({
    "version": tf.__version__,
    "include": tf.sysconfig.get_include(),
    "library": [os.path.join(root, f) for f in sorted(os.listdir(root)) if pattern.match(f)][0],
    "copts": [f for f in flags if re.match("--?std=", f)],
    "defines": [f[2:] for f in flags if f.startswith("-D")],
}))
"""

# The headers are one source artifact, the folder: as a glob they would be 8,000.
_BUILD = """
package(default_visibility = ["//visibility:public"])

exports_files(["{library}"])

cc_library(
    name = "headers",
    hdrs = ["include"],
    defines = {defines},
    includes = ["include"],
)

# Linked by its file: the process that loads us has it loaded already, under the same soname.
filegroup(
    name = "framework",
    srcs = ["{library}"],
)
"""

# TensorFlow 2.15 to 2.21 log to stderr while they are imported; nothing here reads that.
_QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}

def _interpreter(ctx):
    named = ctx.os.environ.get("PYTHON_BIN_PATH")
    if named:
        return named
    in_venv = ctx.path(str(ctx.path(Label("//:WORKSPACE")).dirname) + "/.venv/bin/python")
    return str(in_venv if in_venv.exists else ctx.which("python3"))

def _tf_repository_impl(ctx):
    python = _interpreter(ctx)
    result = ctx.execute([python, "-c", _PROBE], environment = _QUIET)
    if result.return_code != 0:
        fail("%s cannot import tensorflow. Run `make setup`, or set PYTHON_BIN_PATH.\n%s" %
             (python, result.stderr[-2000:]))
    info = json.decode(result.stdout.strip().split("\n")[-1])
    library = info["library"].rpartition("/")[2]
    ctx.symlink(info["include"], "include")
    ctx.symlink(info["library"], library)

    # The define is also what makes a switch of TensorFlow recompile: Bazel does not look into a
    # folder that is one artifact.
    ctx.file("BUILD", _BUILD.format(
        library = library,
        defines = repr(info["defines"] + ['HVD_TF_VERSION=\\"%s\\"' % info["version"]]),
    ))
    ctx.file("tf_info.bzl", "TF_VERSION = %r\nTF_COPTS = %r\n" % (info["version"], info["copts"]))

tf_repository = repository_rule(
    implementation = _tf_repository_impl,
    configure = True,
    environ = ["PYTHON_BIN_PATH"],
    local = True,
)
