"""Samples: of images (`images.py`), arrays (`arrays.py`), a file (`model_samples.py`), a run (`run_samples.py`)."""
