"""Public names of TensorRT's Python module by version, taken from its bindings wheels: no GPU, no TensorRT needed.

    pip download --no-deps --only-binary=:all: -d wheels tensorrt_cu12_bindings==10.16.1.11
    pip download --no-deps --only-binary=:all: -d wheels tensorrt_cu13_bindings==11.4.0.106
    python -m benchmarks.tensorrt_names wheels/*.whl

A bindings wheel holds the compiled module and not the libraries that it links to. Those are asked for a handful of C
functions, none of which does anything that the module's classes and docstrings depend on: so the script compiles
libraries of these names whose functions return 0, imports the module beside them in a process of its own, and reads
what there is. Needs Linux on the wheel's processor, the wheel's version of Python, a C compiler and readelf. Writes
tests/truehalf/runtime/tensorrt/names/tensorrt-<major.minor>.txt, one name a line, sorted:

    Builder(logger)                                            a class and what its constructor takes
    Builder.create_network(flags=) -> INetworkDefinition       a method, each overload; name= has a default
    BuilderFlag.TF32 = 6                                       a member of an enum
    IBuilderConfig.max_aux_streams: int                        an attribute, "read only" where it cannot be set
    get_plugin_registry()                                      a function of the module
    float16                                                    anything else in the module
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "truehalf" / "runtime" / "tensorrt" / "names"
MODULE = "tensorrt_bindings"


def extract(wheel: Path) -> tuple[str, list[str]]:
    """Version and lines of a bindings wheel."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        _stand_in_libraries(next((folder / MODULE).glob("tensorrt.*")), folder)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, "--inside"],
            env={"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{wheel.name}: the module cannot be imported:\n{done.stderr}")
        read = json.loads(done.stdout)
    return read["version"], read["lines"]


def _stand_in_libraries(module: Path, folder: Path) -> None:
    """Compile the libraries of TensorRT that the module links to, with the functions that it misses returning 0."""
    dynamic = subprocess.run(["readelf", "-dW", module], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"NEEDED.*\[(libnv[^\]]+)\]", dynamic)
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", module], capture_output=True, text=True, check=True).stdout
    missing = re.findall(r" UND (\w*(?:Infer|NvOnnx|PluginRegistry)\w*)\s*$", symbols, re.MULTILINE)
    source = folder / "stand_in.c"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in sorted(set(missing))))
    for library in libraries:
        command = ["cc", "-shared", "-fPIC", str(source), f"-Wl,-soname,{library}", "-o", str(folder / library)]
        subprocess.run(command, check=True)


def _inside() -> None:
    """In the process that can import the module: print version and lines as JSON."""
    import tensorrt_bindings as module

    lines = sorted(set(_module_lines(module)))
    print(json.dumps({"version": module.__version__, "lines": lines}))


def _module_lines(module: Any) -> Iterator[str]:
    for name, thing in vars(module).items():
        if name.startswith("_") or inspect.ismodule(thing) or name in ("common_enter", "common_exit", "attr", "value"):
            continue
        if inspect.isclass(thing):
            yield from _class_lines(name, thing)
        elif callable(thing):
            yield from _signatures(name, thing)
        else:
            yield name


def _class_lines(name: str, thing: type) -> Iterator[str]:
    members = getattr(thing, "__members__", None)
    if members is not None:
        yield name
        yield from (f"{name}.{member} = {int(value)}" for member, value in members.items())
        return
    constructor = vars(thing).get("__init__")
    yield from _signatures(name, constructor) if constructor and "(self: " in (constructor.__doc__ or "") else [name]
    for base in reversed([one for one in thing.__mro__ if one.__module__.startswith(MODULE)]):
        for member, value in vars(base).items():
            if member.startswith("_"):
                continue
            if inspect.isclass(value):
                yield from _class_lines(f"{name}.{member}", value)
            elif isinstance(value, property):
                kind = re.search(r"-> (.+)", (value.fget.__doc__ if value.fget else "") or "")
                read_only = "" if value.fset else ", read only"
                yield f"{name}.{member}: {_short(kind[1]) if kind else '?'}{read_only}"
            elif callable(value):
                yield from _signatures(f"{name}.{member}", value)
            else:
                yield f"{name}.{member}"


def _signatures(name: str, function: Any) -> Iterator[str]:
    """One line for each overload that the docstring of pybind11 lists."""
    found = False
    last = name.rpartition(".")[2] if not name[0].isupper() or "." in name else "__init__"
    for line in (function.__doc__ or "").splitlines():
        match = re.match(rf"(?:\d+\. )?{last}\((.*)\) -> (.+)$", line.strip())
        if match and not match[1].startswith("*args"):
            found = True
            taken = ", ".join(_arguments(match[1]))
            given = (
                "" if last == "__init__" or match[2] == "None" or "accessor" in match[2] else f" -> {_short(match[2])}"
            )
            yield f"{name}({taken}){given}"
    if not found:
        try:
            taken = ", ".join(one for one in inspect.signature(function).parameters if one != "self")
            yield f"{name}({taken})"
        except (TypeError, ValueError):
            yield name


def _arguments(text: str) -> Iterator[str]:
    depth, one, parts = 0, "", []
    for character in text:
        depth += (character in "[(<") - (character in "])>")
        if character == "," and not depth:
            parts.append(one)
            one = ""
        else:
            one += character
    for part in [*parts, one]:
        argument = part.strip().split(":")[0]
        if argument not in ("self", "", "/", "*"):
            yield argument + ("=" if re.search(r"[^=<>]= ", part) or " = " in part else "")


def _short(kind: str) -> str:
    kind = kind.replace("nvonnxparser::IParserError", "ParserError")
    return re.sub(
        r"tensorrt_bindings\.tensorrt\.|typing(_extensions)?\.|collections\.abc\.|nv\w+::(v_\d_\d::)?", "", kind
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the public names out of bindings wheels of TensorRT.")
    parser.add_argument("wheels", nargs="*", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        _inside()
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for wheel in arguments.wheels:
        version, lines = extract(wheel)
        file = FOLDER / f"tensorrt-{'.'.join(version.split('.')[:2])}.txt"
        file.write_text("\n".join([f"# tensorrt {version}: public names; benchmarks/tensorrt_names.py", *lines]) + "\n")
        print(f"{file.name}: {len(lines)} names of TensorRT {version}")


if __name__ == "__main__":
    main()
