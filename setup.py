"""All metadata is in settings.ini: edit it there."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

config = ConfigParser(delimiters=["="])
config.read("settings.ini", encoding="utf-8")
meta = config["DEFAULT"]
licences = {"apache2": "Apache-2.0", "mit": "MIT", "bsd3": "BSD-3-Clause"}
statuses = ["1 - Planning", "2 - Pre-Alpha", "3 - Alpha", "4 - Beta", "5 - Production/Stable", "6 - Mature", "7 - Inactive"]
oldest = int(meta["min_python"].split(".")[1])
extras = ["plot", "sklearn", "notebook", "book", "dev"]


def readme():
    """The README with links that lead somewhere from a package index: into the repository if its address is known, else plain text."""
    text = Path("README.md").read_text(encoding="utf-8")
    local = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")
    if meta["git_url"]:
        return local.sub(rf"\1[\2]({meta['git_url']}/raw/{meta['branch']}/\3)", text)
    return local.sub(lambda link: "" if link[1] else link[2], text)


setup(
    name=meta["lib_name"],
    version=meta["version"],
    description=meta["description"],
    long_description=readme(),
    long_description_content_type="text/markdown",
    author=meta["author"],
    author_email=meta["author_email"] or None,
    license=licences[meta["license"]],
    license_files=["LICENSE"],
    keywords=meta["keywords"].split(),
    url=meta["git_url"] or None,
    project_urls={"Source": meta["git_url"], "Issues": meta["git_url"] + "/issues"} if meta["git_url"] else {},
    python_requires=">=" + meta["min_python"],
    install_requires=meta["requirements"].split(),
    extras_require={extra: meta[f"{extra}_requirements"].split() for extra in extras},
    packages=[meta["lib_path"]],
    package_data={meta["lib_path"]: ["py.typed", "*.mplstyle", "**/*.json", "**/*.safetensors"]},
    classifiers=[
        f"Development Status :: {statuses[int(meta['status']) - 1]}",
        f"Intended Audience :: {meta['audience']}",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(oldest, 14)),
    ],
    entry_points={"nbdev": [f"{meta['lib_path']}={meta['lib_path']}._modidx:d"]},
    zip_safe=False,
)
