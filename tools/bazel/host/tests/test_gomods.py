"""Proves that Go's modules and packages have the names that gazelle gives them."""

import gomods
import pytest


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("github.com/google/go-cmp", "com_github_google_go_cmp"),
        ("github.com/BurntSushi/toml", "com_github_burntsushi_toml"),
        ("golang.org/x/sync", "org_golang_x_sync"),
        ("gopkg.in/yaml.v3", "in_gopkg_yaml_v3"),
        ("k8s.io/klog/v2", "io_k8s_klog_v2"),
    ],
)
def test_module_maps_to_its_repository_name(module: str, name: str) -> None:
    assert gomods.repository_name(module) == name


@pytest.mark.parametrize(
    ("importpath", "name"),
    [
        ("github.com/google/go-cmp/cmp", "cmp"),
        ("gopkg.in/yaml.v3", "yaml_v3"),
        ("k8s.io/klog/v2", "klog"),
        ("github.com/google/go-cmp/cmp/internal/v1x", "v1x"),
    ],
)
def test_import_path_maps_to_its_target_name(importpath: str, name: str) -> None:
    assert gomods.target_name(importpath) == name
