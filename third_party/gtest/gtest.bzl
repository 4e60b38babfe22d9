"""GoogleTest and GoogleMock as Debian installs them (libgtest-dev, libgmock-dev)."""

load("//third_party:system_library.bzl", "system_library")

def _gtest_repository_impl(ctx):
    system_library(
        ctx,
        name = "gtest",
        headers = ["gtest", "gmock"],
        # libgmock_main.a holds a main() that also understands GoogleTest's flags.
        archives = ["libgmock_main.a", "libgmock.a", "libgtest.a"],
        debian_package = "libgtest-dev libgmock-dev",
        linkopts = ["-pthread"],
    )

gtest_repository = repository_rule(
    implementation = _gtest_repository_impl,
    configure = True,
    environ = ["CC"],
    local = True,
)
