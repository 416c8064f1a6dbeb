#!/bin/sh
# Complete the virtual environment of an image: our packages, its bill of materials, and nothing that installs others.
set -eu
/opt/venv/bin/pip install --quiet --no-deps --force-reinstall .
# Headers and tests of packages; the C compiler that would read the headers is not there either.
rm -rf /opt/venv/lib/python3*/site-packages/pyarrow/include /opt/venv/lib/python3*/site-packages/pyarrow/tests
/opt/venv/bin/pip uninstall --quiet --yes pip
/opt/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-file /opt/venv/sbom.cdx.json /opt/venv
