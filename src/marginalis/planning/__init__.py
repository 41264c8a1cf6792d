"""Planning: which path, schedule, number of steps and number of chains, as far as the options leave them open.

`pilots` fits schedules to short runs, `choose` compares paths, `tolerance` finds how many steps and chains a tolerance
takes. Pilots draw from random streams of their own and never enter the estimate, so that Ẑ stays unbiased.
May import `running` and below. Read `pilots` first.
"""
