"""What pyproject.toml cannot say: configs/ at the top level is the package `keras_xmr.configs`."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["data_pipelines*", "keras_xmr*"]), "keras_xmr.configs"],
    package_dir={"keras_xmr.configs": "configs"},
)
