"""Reads --config-file: YAML that stands for flags.

At the top level a key is a flag's name ("num-proc" or "num_proc"); the sections below group
others.  The file becomes a list of flags, so the command line's checks are its checks too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["ConfigFileError", "flags_from_config", "read_config_file"]

# Section, and what stands before its keys to make a flag.
_SECTIONS = {
    "params": "",
    "library-options": "",
    "logging": "",
    "autotune": "autotune-",
    "timeline": "timeline-",
    "stall-check": "stall-check-",
}
_RENAMED = {
    "stall-check-enabled": "stall-check",
    "autotune-enabled": "autotune",
    "level": "log-level",
    "np": "num-proc",
}


class ConfigFileError(ValueError):
    """The file cannot be read, or holds what no flag stands for."""


def read_config_file(path: str) -> list[str]:
    """Returns the flags that the file stands for.

    Args:
      path: a YAML file that holds a mapping.

    Raises:
      ConfigFileError: it cannot be read, or a value is neither text, number nor truth value.
    """
    import yaml  # costs 30 ms, so only those who use it pay

    try:
        config = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigFileError(f"--config-file {path}: cannot be read ({error})") from error
    if config is None:
        return []
    if not isinstance(config, dict):
        raise ConfigFileError(f"--config-file {path}: must be a mapping, such as 'num-proc: 2'")
    try:
        return flags_from_config(config)
    except ConfigFileError as error:
        raise ConfigFileError(f"--config-file {path}: {error}") from error


def flags_from_config(config: dict[Any, Any]) -> list[str]:
    """Turns the mapping into flags.  A key that is no flag becomes one that the parser refuses.

    Raises:
      ConfigFileError: a value is neither text, number nor truth value.
    """
    flags: list[str] = []
    for key, value in config.items():
        name = str(key).replace("_", "-")
        if isinstance(value, dict) and name in _SECTIONS:
            for inner, inner_value in value.items():
                flags += _flag(_SECTIONS[name] + str(inner).replace("_", "-"), inner_value)
        else:
            flags += _flag(name, value)
    return flags


def _flag(name: str, value: Any) -> list[str]:
    name = _RENAMED.get(name, name)
    if name == "hide-timestamp":
        name, value = "log-with-timestamp", not value
    if value is True:
        return [f"--{name}"]
    if value is False:
        return _OFF.get(name, [])
    if value is None:
        return []
    if isinstance(value, (str, int, float)):
        return [f"--{name}={value}"]
    raise ConfigFileError(f"{name}: must be text, a number or true/false, not {value!r:.80}")


# What "false" means; for other flags it means that the flag is absent.
_OFF = {
    "log-with-timestamp": ["--log-without-timestamp"],
    "stall-check": ["--no-stall-check"],
    "timeline-mark-cycles": ["--no-timeline-mark-cycles"],
}
