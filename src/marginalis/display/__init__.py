"""Display of answers: as short text, as a card in a notebook, or as a page of HTML.

`card` defines `Displayed`, the base class of values with a short text and a card; `sketch` draws the thumbnails of
cards, `page` makes pages of HTML, and `words` formats names and numbers. The package belongs to the lowest layer and
imports `checks` only. Read `card` first.
"""
