"""Near ties: decisions of a model (which element is the largest, on which side of a threshold a value is) that FP16's
rounding explains.
"""
