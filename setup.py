"""What pyproject.toml cannot say: configs/ and docs/ at the top level are packages of keras_xmr."""

from setuptools import find_packages, setup

_TOP_LEVEL = {"keras_xmr.configs": "configs", "keras_xmr.docs": "docs"}

setup(
    packages=[*find_packages(include=["data_pipelines*", "keras_xmr*"]), *_TOP_LEVEL],
    package_dir=_TOP_LEVEL,
)
