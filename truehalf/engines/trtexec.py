"""plan.json: record of an engine build, with the trtexec lines that build the same engine on another machine.

Nothing reads the file back: on the machine with the GPU, run the line, or `truehalf engine model.onnx`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from truehalf.config.engine import KINDS, EngineConfig
from truehalf.config.typed import plain
from truehalf.files import file_sha256
from truehalf.io_spec.profiles import Profile, dynamic_inputs
from truehalf.ir.model_forms import ModelFile
from truehalf.json_values import JsonObject

PLAN_FILE, ENGINE_FILE = "plan.json", "model.engine"
_OF_CHECKS = ("backend", "profiles", "plugins", "plugin_ops", "gates", "latency")


def plan_of(file: ModelFile, options: EngineConfig, profiles: Sequence[Profile]) -> JsonObject:
    """The record of a build, which names files without their folders.

    Args:
        file: the final ONNX file.

    Returns:
        {backend, onnx, onnx_data (files of weights), onnx_sha256 (of all, one after the other), profiles, plugins,
        engine, builder (options), trtexec and trtexec_10 (command lines for TensorRT 11 and 10, to be run in a folder
        that holds the files)}.
    """
    varying = dynamic_inputs(file.written)
    shapes = [{name: ranges for name, ranges in profile.items() if name in varying} for profile in profiles]
    return {
        "backend": options.backend.value,
        "onnx": file.path.name,
        "onnx_data": file.external,
        "onnx_sha256": file.digest,
        "profiles": plain(profiles),
        "plugins": [{"path": library, "sha256": file_sha256(Path(library))} for library in options.plugins],
        "engine": ENGINE_FILE,
        "builder": {name: value for name, value in plain(options).items() if name not in _OF_CHECKS},
        "trtexec": _trtexec(file.path.name, options, shapes),
        "trtexec_10": _trtexec(file.path.name, options, shapes, "--stronglyTyped"),  # as TensorRT 11 always builds
    }


def _trtexec(model: str, options: EngineConfig, profiles: Sequence[Profile], *further: str) -> str:
    """A command line of trtexec that builds the engine and does not run it.

    Args:
        profiles: of the inputs whose shapes are not fixed; trtexec refuses shapes of others.
        further: flags.
    """
    values = {  # by flag; None: trtexec's default
        "onnx": model,
        "saveEngine": ENGINE_FILE,
        "memPoolSize": f"workspace:{options.workspace_gb * 1024:g}M",
        "builderOptimizationLevel": options.builder_optimization_level,
        "timingCacheFile": None if options.timing_cache is None else "trtexec.cache",
        "profilingVerbosity": "detailed",
    }
    command = ["trtexec", *(f"--{flag}={value}" for flag, value in values.items() if value is not None), *further]
    command += [] if options.tf32 else ["--noTF32"]
    # without a folder in its name, the loader would look for a library in system folders
    command += [f"--dynamicPlugins=./{Path(plugin).name}" for plugin in options.plugins]
    for number, profile in enumerate(profiles):
        command += [f"--profile={number}"] if len(profiles) > 1 and profile else []
        for kind in KINDS if profile else ():
            shapes = (f"{_quoted(name)}:{'x'.join(map(str, ranges[kind]))}" for name, ranges in profile.items())
            command.append(f"--{kind}Shapes={','.join(shapes)}")
    return shlex.join([*command, "--skipInference"])


def _quoted(name: str) -> str:
    return f"'{name}'" if set(name) & {":", ",", "*"} else name
