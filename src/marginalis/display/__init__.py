"""What people see of an answer: its short text, a card in a notebook, a page in a browser."""
