"""The commands, a file for each kind of question. They only gather arguments and print; the work is done in the rooms below."""
