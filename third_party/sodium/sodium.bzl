"""libsodium as Debian installs it (libsodium-dev), linked statically: users need no package."""

load("//third_party:system_library.bzl", "system_library")

def _sodium_repository_impl(ctx):
    system_library(
        ctx,
        name = "sodium",
        headers = ["sodium.h", "sodium"],
        archives = ["libsodium.a"],
        debian_package = "libsodium-dev",
    )

sodium_repository = repository_rule(
    implementation = _sodium_repository_impl,
    configure = True,
    environ = ["CC"],
    local = True,
)
