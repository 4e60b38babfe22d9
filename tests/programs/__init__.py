"""Random programs of collectives, right and wrong ones mixed, and what they must come to.

A program is data (program.py).  It follows from a list of numbers (draw.py), so that hypothesis can
shrink it, a seed can make it and a command line can repeat it.  Ranks run it through the C API
(rank.py, job.py); a model in NumPy says what each call must come to (values.py, model.py), and
judge.py compares.  `test_programs.py` runs many of them, `make soak` (soak.py) runs them for long.
"""
