"""The limits of float16 that rules, rounding and calibration speak of."""

MAX = 65504.0  # the largest finite one
NORMAL_MIN = 2.0**-14  # what is smaller is a subnormal, 2^-24 apart, or 0
LOST = 2.0**-25  # this and everything smaller becomes 0 (the tie goes to the even side)
KEEP_FLOAT32 = "truehalf.float32"  # key in a node's metadata_props: the reason why it stays FP32
