"""MLflow's model registry: the final ONNX file of a run whose gates have passed, byte for byte as it was verified.

The artifacts in `model/` become a model of MLflow's flavors onnx and pyfunc, with signature, I/O spec and verdict. A
version carries the run, its verdict and the file's SHA-256.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from pipeline.run_record import PASSED, Run
from pipeline.track import FILE_TAG, MODEL_FOLDER, log_model, sha256_of
from truehalf.codes import coded

_IMPORTED = ("onnx", "onnxruntime")  # by mlflow.onnx


class NotRegistered(Exception):
    """Reason why a run is not registered, and what to do."""


def register(mlflow: Any, run_id: str, run: Run) -> dict[str, str]:
    """Make the file of a logged run a version of the registered model of its name, once; return {"name", "version"}.

    Raises:
        NotRegistered: gates have not passed, the file is missing or too large, or is not the one that was logged.
    """
    if reason := refusal(run):
        raise NotRegistered(reason)
    client, name = mlflow.MlflowClient(), registered_name(run)
    for version in client.search_model_versions(f"run_id='{run_id}'"):
        return {"name": str(version.name), "version": str(version.version)}
    logged = client.get_run(run_id).data.tags
    if logged.get(FILE_TAG) != sha256_of(run.model_files):
        message = (
            f"run {run_id} was logged with another file than {run.model_files[0]}: expected the SHA-256 "
            f"{logged.get(FILE_TAG)}, got {sha256_of(run.model_files)}; delete that run in MLflow, and run again"
        )
        raise NotRegistered(coded("wrong-file", message))
    with tempfile.TemporaryDirectory() as folder, mlflow.start_run(run_id=run_id):
        if not client.list_artifacts(run_id, MODEL_FOLDER):  # it was above tracking.max_model_mb then
            log_model(mlflow, run)
        _write_model(mlflow, run_id, run, Path(folder))
        mlflow.log_artifacts(folder, MODEL_FOLDER)
    kept_tags = ("verdict", "evaluation", "precision", "engine", "git_commit", "git_dirty", FILE_TAG)
    tags = {key: logged[key] for key in kept_tags if key in logged}
    with contextlib.redirect_stderr(io.StringIO()):  # MLflow prints lines of its own there
        version = mlflow.register_model(f"runs:/{run_id}/{MODEL_FOLDER}", name, tags=tags)
    client.update_model_version(name, version.version, _description(run, run_id))
    return {"name": name, "version": str(version.version)}


def registered_name(run: Run) -> str:
    """Name of the registered model: that of the run, and the model's digest, so that two models are never versions of
    one.
    """
    return f"{run.name}-{run.model_digest[:8]}" if run.model_digest else run.name


def refusal(run: Run) -> str | None:
    """Reason why a run is not registered; None where it may be."""
    if run.verdict != PASSED:
        engine = run.reports.engine.status if run.reports.engine else "not run"
        message = f"its gates have not passed (verdict: {run.verdict}, engine: {engine})"
        return coded("gates-not-passed", message)
    if not run.model_files:
        return coded("file-missing", "it has no final ONNX file")
    limit, size = run.params["tracking"]["max_model_mb"], sum(file.stat().st_size for file in run.model_files) / 1e6
    if size > limit:
        return coded("too-large", f"its file has {size:.0f} MB, above tracking.max_model_mb={limit:g}; raise that")
    return None


def _write_model(mlflow: Any, run_id: str, run: Run, folder: Path) -> None:
    """Write MLmodel and its requirements beside the logged file, the I/O spec and the verdict."""
    import mlflow.onnx
    from mlflow.models import Model

    file = run.model_files[0]
    model = Model(MODEL_FOLDER, run_id, signature=signature(file), metadata={"io_spec": run.spec})
    mlflow.pyfunc.add_to_model(model, loader_module="mlflow.onnx", data=file.name, python_env="python_env.yaml")
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    onnx_version = importlib.metadata.version("onnx")
    model.add_flavor("onnx", onnx_version=onnx_version, data=file.name, providers=providers, onnx_session_options=None)
    model.save(str(folder / "MLmodel"))
    (folder / "requirements.txt").write_text("".join(map(_requirement, _IMPORTED)))
    (folder / "python_env.yaml").write_text("dependencies:\n- -r requirements.txt\n")
    (folder / "io_spec.json").write_text(json.dumps(run.spec, indent=2) + "\n")
    (folder / "verdict.json").write_text(json.dumps(run.verdict_file, indent=2) + "\n")


def _requirement(module: str) -> str:
    package = importlib.metadata.packages_distributions()[module][0]
    return f"{package}=={importlib.metadata.version(package)}\n"


def signature(file: Path) -> Any:
    """Inputs and outputs of an ONNX file as MLflow's signature: names, dtypes, shapes with -1 for axes that vary."""
    import numpy as np
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    graph = onnx.load(str(file), load_external_data=False).graph
    constants = {constant.name for constant in graph.initializer}

    def schema(values: Any) -> Schema:
        specs: list[Any] = []
        for value in values:
            tensor = value.type.tensor_type
            shape = [side.dim_value if side.HasField("dim_value") else -1 for side in tensor.shape.dim]
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            specs.append(TensorSpec(dtype, tuple(shape), value.name))
        return Schema(specs)

    return ModelSignature(schema([value for value in graph.input if value.name not in constants]), schema(graph.output))


def _description(run: Run, run_id: str) -> str:
    gates = [gate for gate in run.verdict_file.get("findings", []) if "gate" in gate]
    return "\n".join(
        [f"Run {run_id}: {run.verdict}.", *(f"- {gate['gate']}: {gate['state']}: {gate['reason']}" for gate in gates)]
    )
