"""onnxslim compared with the source; what changes outputs is left out."""
