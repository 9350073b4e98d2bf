"""Print requirements from pyproject.toml, one a line, for `pip install $(...)`.

build: what the build needs; build-dynamic: what the build backend asks for on this machine (cmake
and ninja where there are none); dev: the dev group with everything that importing Octavo needs;
bench: what benchmarks/ needs besides.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def _dynamic() -> list[str]:
    from scikit_build_core.build import get_requires_for_build_wheel

    return list(get_requires_for_build_wheel({}))


def main(kind: str) -> list[str]:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    match kind:
        case "build":
            return list(project["build-system"]["requires"])
        case "build-dynamic":
            return _dynamic()
        case "dev":
            runtime = project["project"]["dependencies"]
            serve = project["project"]["optional-dependencies"]["serve"]
            return [*project["dependency-groups"]["dev"], *runtime, *serve]
        case "bench":
            return list(project["dependency-groups"]["bench"])
    raise SystemExit(f"requirements: {kind!r}: expected build, build-dynamic, dev or bench")


if __name__ == "__main__":
    print("\n".join(r.replace(" ", "") for r in main(sys.argv[1])))
