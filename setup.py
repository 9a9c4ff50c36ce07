"""The distribution `seep`: its packages, what they need to run, and the extras (tool settings: pyproject.toml)."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGES = ("primitives", "formats", "policies", "vmpool", "seep", "lrb", "nexmark")
#: Folders that `seep.shipped` finds -> the files of them that go into the wheel, as data of packages below it.
SHIPPED = {"config": ["*.yaml"], "deploy": ["*/*"]}

RUNTIME = [
    "cryptography>=42.0",
    "fastavro>=1.9",
    "msgpack>=1.1",
    "networkx>=3.2",
    "numba>=0.59",
    "numpy>=1.26",
    "pyarrow>=19.0",
    "pydantic>=2.9",
    "pyspark>=4.0",
    "PyYAML>=6.0",
    "rich>=13.7",
    "typer>=0.15.4",
]

EXTRAS = {
    "cloud": ["boto3>=1.34", "google-cloud-compute>=1.19.1"],
    "dashboard": ["duckdb>=2.0", "fastapi>=0.115", "uvicorn>=0.32"],
    "disk": ["rocksdict>=0.3.29"],
    "metrics": ["prometheus-client>=0.20"],
    "otlp": ["opentelemetry-exporter-otlp-proto-http>=1.30", "opentelemetry-sdk>=1.30"],
    "pandas": ["pandas>=2.2,<3"],  # for processors that get frames, and what benchmarks compare with
    "dev": [
        "axe-playwright-python>=0.1.4",  # accessibility of the dashboard
        "boto3>=1.34",  # the extra `cloud`, which the tests need whole
        "duckdb>=2.0",  # the extra `dashboard`
        "fastapi>=0.115",
        "google-cloud-compute>=1.19.1",
        "httpx>=0.27",
        "hypothesis>=6.100",
        "ipykernel>=6.29",  # a real kernel for the tests of notebooks
        "jupyter-client>=8.6",
        "moto[ec2,server]>=5.1",  # a real EC2 API on loopback
        "mypy>=1.15",
        "opentelemetry-exporter-otlp-proto-http>=1.30",  # the extra `otlp`
        "opentelemetry-sdk>=1.30",
        "packaging>=24.0",
        "pip-tools>=7.4",
        "playwright>=1.49",  # drives the system's Chromium in the tests of the dashboard
        "pre-commit>=4.0",
        "prometheus-client>=0.20",  # the extra `metrics`
        "pytest>=8.2",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.6",
        "rocksdict>=0.3.29",  # the extra `disk`
        "ruff>=0.12",
        "schemathesis>=4.0",  # requests that its description permits, for the REST API
        "towncrier>=24.8",  # puts the fragments of the changelog together
        "uvicorn>=0.32",
    ],
    # what `make docs` calls, in an environment of its own and with a lock of its own: docs/requirements.lock
    "docs": ["mkdocs-material>=9.5", "mkdocstrings-python>=1.12"],
}

setup(
    name="seep-streaming",
    version="0.1.0",
    description="Stateful stream processing that can grow, shrink, heal and rebalance while it runs, hosted by Spark",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[
        *find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")]),
        *(f"seep.shipped.{folder}" for folder in SHIPPED),
    ],
    package_dir={f"seep.shipped.{folder}": folder for folder in SHIPPED},
    package_data={name: ["py.typed"] for name in PACKAGES}
    | {"seep.dashboard": ["static/*", "static/parts/*", "static/views/*"]}
    | {f"seep.shipped.{folder}": files for folder, files in SHIPPED.items()},
    install_requires=RUNTIME,
    entry_points={
        "console_scripts": ["seep = seep.cli:main"],
        "seep.commands": ["lrb = lrb.cli:app", "nexmark = nexmark.cli:app"],
    },
    extras_require=EXTRAS,
    zip_safe=False,
)
