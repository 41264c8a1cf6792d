"""The HTML report: one self-contained page about the free energy of one model.

`report` computes the answers (`Report`), and `html` turns them into the page. The package may import all
layers below it, up to the figures; only the public names and the command line import it. Read `report` first.
"""
