"""The distribution `seep`: its packages, what they need to run, and the extras (tool settings: pyproject.toml)."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGES = ("primitives", "policies", "vmpool", "deploy", "seep", "lrb", "nexmark")

RUNTIME = [
    "cryptography>=42.0",
    "fastavro>=1.9",
    "msgpack>=1.1",
    "networkx>=3.2",
    "numba>=0.61",
    "numpy>=2.0",
    "pyarrow>=26.0",
    "pydantic>=2.7",
    "pyspark>=4.0",
    "PyYAML>=6.0",
    "rich>=13.7",
    "typer>=0.12",
]

EXTRAS = {
    "cloud": ["boto3>=1.34", "google-cloud-compute>=1.19"],
    "disk": ["rocksdict>=0.3.29"],
    "dashboard": ["starlette>=0.40", "uvicorn>=0.30"],
    "bench": ["matplotlib>=3.9", "pandas>=2.2,<3"],  # pandas for Spark's own ways to keep state
    "dev": [
        "boto3>=1.34",  # the extra `cloud`, which the tests need whole
        "google-cloud-compute>=1.19",
        "hypothesis>=6.100",
        "moto[ec2,server]>=5.1",  # a real EC2 API on loopback
        "mypy>=1.15",
        "packaging>=24.0",
        "pip-tools>=7.4",
        "pre-commit>=4.0",
        "pytest>=8.2",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.6",
        "rocksdict>=0.3.29",  # the extra `disk`
        "ruff>=0.12",
    ],
}

setup(
    name="seep",
    version="0.1.0",
    description="Stateful stream processing that can grow, shrink, heal and rebalance while it runs, hosted by Spark",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")]),
    package_data={name: ["py.typed"] for name in PACKAGES}
    | {
        "deploy": ["py.typed", "templates/*.sh"],
        "deploy.ec2": ["*.json", "*.sh"],
        "deploy.gcp": ["*.sh", "*.yaml"],
    },
    install_requires=RUNTIME,
    entry_points={"console_scripts": ["seep = seep.cli:main"]},
    extras_require=EXTRAS,
    zip_safe=False,
)
