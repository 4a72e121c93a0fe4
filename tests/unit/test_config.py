"""Settings: where they come from, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmcc import config
from warmcc.errors import ConfigError


def load(tmp_path: Path, text: str = "", **environ: str) -> config.Config:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return config.load(file, {f"WARMCC_{name.upper()}": value for name, value in environ.items()})


def test_variables_overlay_the_file_which_overlays_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, 'store_size = "2GiB"\njobs = 3\npch = false\n', jobs="4", lean="0")
    assert (found.store_size, found.jobs, found.pch, found.lean) == (2 << 30, 4, False, False)
    assert found.binding is True


def test_each_switch_can_be_a_variable(tmp_path: Path) -> None:
    defaults = config.Config()
    switches = [
        name for name in config.Config.__struct_fields__
        if isinstance(getattr(defaults, name), bool)
    ]  # fmt: skip
    assert "huge_pages" in switches
    for name in switches:
        for text, value in (("0", False), ("1", True), ("False", False)):
            assert getattr(load(tmp_path, **{name: text}), name) is value


def test_no_file_is_all_defaults(tmp_path: Path) -> None:
    assert config.load(tmp_path / "none.toml", {}) == config.Config()


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("2KiB", 2048), ("1.5 GiB", 3 << 29), ("3 mb", 3_000_000), ("7B", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert config.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "big", "1XB", "-1", "0.3B", "1 GiB 2"])
def test_wrong_sizes(text: str) -> None:
    with pytest.raises(ConfigError, match="not a size"):
        config.parse_size(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store_siez = 1", "did you mean 'store_size'"),
        ("zzz = 1", "known: store_size"),
        ("jobs = -1", "jobs = -1"),
        ('jobs = "many"', "jobs = 'many'"),
        ("pch = 3", "pch = 3"),
        ('log_level = "loud"', "log_level = 'loud'"),
        ("store_size = 0", "store_size = 0"),
        ("jobs = ", "not TOML"),
        ("[table]\njobs = 1", "unknown key 'table'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "config.toml" in str(caught.value)


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="WARMCC_BUILD_TIMEOUT"):
        load(tmp_path, build_timeout="soon")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(tmp_path / "config.toml", {})


def test_prewarm_of_a_variable(tmp_path: Path) -> None:
    assert load(tmp_path, prewarm="").prewarm == []
    assert load(tmp_path, prewarm="-O2;-O3 -g").prewarm == ["-O2", "-O3 -g"]
