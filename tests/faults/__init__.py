"""Faults at random moments: ranks that are killed, stopped or end, and what the others see.

catalog.py   what is done to a rank, and what the others must see then (pure)
rank_main.py a rank: an endless loop of collectives, as training is
steps.py     the collectives of one step;  requests.py: those that may be left in flight
remains.py   what a process holds that it should not
trial.py     one job of a few ranks, with one fault
judge.py     what was wrong with a trial (pure)
table.py     what the trials came to, for the terminal and docs/reliability.md (pure)
__main__.py  many trials: `make test-faults`
"""
