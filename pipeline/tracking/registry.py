"""MLflow's model registry: the final ONNX file of a run whose gates have passed, as the file itself and nothing else.

The run's artifacts in `model/` become a model of MLflow's flavors onnx and pyfunc: the verified file byte for byte, its
signature, the I/O spec, and the verdict with every gate. A version carries the run, its verdict and the file's SHA-256.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.tracking.record import Record, run_name
from truehalf.codes import coded
from truehalf.files import file_sha256

FOLDER = "model"
SHA256_TAG = "model_sha256"
_IMPORTED = ("onnx", "onnxruntime")  # by mlflow.onnx; which package brings the latter differs


class NotRegistered(Exception):
    """Why a run is not registered, and what to do."""


def refusal(record: Record) -> str | None:
    """Why a run is not registered; None where it is."""
    verdict = record.tags["verdict"]
    if record.failed or verdict != "passed":
        message = f"its gates have not passed (verify: {verdict}, engine: {record.tags['engine']})"
        return coded("gates-not-passed", message)
    if not record.model_files:
        return coded("file-missing", "it has no final ONNX file")
    limit = record.params["tracking"]["max_model_mb"]
    size = sum(file.stat().st_size for file in record.model_files) / 1e6
    if size > limit:
        return coded("too-large", f"its file has {size:.0f} MB, above tracking.max_model_mb={limit:g}; raise that")
    return None


def register(mlflow: Any, run_id: str, record: Record) -> dict[str, str]:
    """Make the run's file a version of the registered model of the run's name, once.

    Args:
        run_id: a run that is logged. A file that was too large for tracking.max_model_mb then is logged now.
        record: that run.

    Returns:
        {"name", "version"}.

    Raises:
        NotRegistered: `refusal` has something against it, or its file is no longer the one that was logged.
    """
    if reason := refusal(record):
        raise NotRegistered(reason)
    client, name = mlflow.MlflowClient(), run_name(record.params)
    _complete(client, run_id, record)
    for known in client.search_model_versions(f"run_id='{run_id}'"):
        return {"name": str(known.name), "version": str(known.version)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _describe(mlflow, run_id, record, folder)
        client.log_artifacts(run_id, str(folder), FOLDER)
    run = client.get_run(run_id)
    if not client.search_registered_models(f"name='{name}'"):
        try:
            client.create_registered_model(name, description="Each version is the final ONNX file of a verified run.")
        except mlflow.MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another run was first
                raise
    kept_tags = ("verdict", "evaluation", "precision", "engine", "git_commit", "git_dirty")
    tags = {key: record.tags[key] for key in kept_tags} | {SHA256_TAG: run.data.tags[SHA256_TAG]}
    source = f"{run.info.artifact_uri}/{FOLDER}"
    version = client.create_model_version(name, source, run_id, tags=tags, description=_description(record, run))
    return {"name": name, "version": str(version.version)}


def sha256_of(files: Sequence[Path]) -> str:
    """SHA-256 of a file, as `sha256sum` prints it; of several, one over theirs."""
    digests = [file_sha256(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()


def _complete(client: Any, run_id: str, record: Record) -> None:
    """Log the files of the model that the run lacks, if they are those whose hash it has."""
    logged = {Path(file.path).name: file.file_size for file in client.list_artifacts(run_id, FOLDER)}
    whole = [file for file in record.model_files if logged.get(file.name, -1) in (None, file.stat().st_size)]
    lacking = [file for file in record.model_files if file not in whole]  # a store may not know sizes: None
    if not lacking:
        return
    expected, got = client.get_run(run_id).data.tags.get(SHA256_TAG), sha256_of(record.model_files)
    if got != expected:
        message = (
            f"run {run_id} was logged without its file, and {record.model_files[0]} is another: expected the SHA-256 "
            f"{expected}, got {got}; delete that run in MLflow, and run the pipeline again"
        )
        raise NotRegistered(coded("wrong-file", message))
    for file in lacking:
        client.log_artifact(run_id, str(file), FOLDER)


def _describe(mlflow: Any, run_id: str, record: Record, folder: Path) -> None:
    """Write what makes the logged file a model of MLflow's: MLmodel and requirements; and the spec and the verdict."""
    import mlflow.onnx
    from mlflow.models import Model

    spec = json.loads(record.spec_file.read_text())
    file = record.model_files[0]
    model = Model(FOLDER, run_id, signature=signature(file), metadata={"io_spec": spec})
    mlflow.pyfunc.add_to_model(model, loader_module="mlflow.onnx", data=file.name, python_env="python_env.yaml")
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    onnx_version = importlib.metadata.version("onnx")
    model.add_flavor("onnx", onnx_version=onnx_version, data=file.name, providers=providers, onnx_session_options=None)
    model.model_size_bytes = sum(each.stat().st_size for each in record.model_files)
    model.save(str(folder / "MLmodel"))
    (folder / "requirements.txt").write_text("".join(map(_requirement, _IMPORTED)))
    (folder / "python_env.yaml").write_text("dependencies:\n- -r requirements.txt\n")
    (folder / "io_spec.json").write_text(json.dumps(spec, indent=2) + "\n")
    (folder / "verdict.json").write_bytes(_verdict_file(record).read_bytes())


def _requirement(module: str) -> str:
    package = importlib.metadata.packages_distributions()[module][0]
    return f"{package}=={importlib.metadata.version(package)}\n"


def signature(model: Path) -> Any:
    """What an ONNX file takes and gives, as MLflow's signature: names, dtypes, shapes with -1 where a side may vary."""
    import numpy as np
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    graph = onnx.load(str(model), load_external_data=False).graph
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


def _description(record: Record, run: Any) -> str:
    verdict = json.loads(_verdict_file(record).read_text())
    head = f"Run {run.info.run_id} of experiment {run.info.experiment_id}: {verdict['verdict']}."
    gates = [gate for gate in verdict["findings"] if "gate" in gate]
    return "\n".join([head, *(f"- {gate['gate']}: {gate['state']}: {gate['reason']}" for gate in gates)])


def _verdict_file(record: Record) -> Path:
    return record.folder / "artifacts" / "verify" / "verdict.json"
