"""`outrider bench`: ways to run a model beside each other in one run, and the bound that each has.

Every way (`Way`) runs in a child process of its own (`child.py`), which opens the model and then
waits for its turns; `turns.py` gives them, round by round, A B C A B C. `workload.py` says what is
computed in a turn, and how routing is forced; `cap.py` limits the memory of the children;
`figures.py` makes figures of what was measured, `tables.py` shows them.
"""
