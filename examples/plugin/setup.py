"""Install the plugin. It then needs no --user-dir, since its entry point names the package to import."""

from __future__ import annotations

from setuptools import setup

setup(
    name="nmt-bag-of-words",
    version="0.1.0",
    packages=["bag_of_words"],
    package_data={"bag_of_words": ["conf/*/*.yaml"]},
    install_requires=["nmt-toolkit"],
    entry_points={"nmt.plugins": ["bag_of_words = bag_of_words"]},
)
