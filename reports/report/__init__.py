"""One page from the JSON and the traces of the runs: `packedss report`.

gather     reads a folder: untrusted files, each a result of a command or a trace
blocks     what a page is made of, whatever it is rendered as
sections   a section per command: which of its figures are shown, and how
explorer   traces for the step explorer, each with its first step that no rule explains
html       the self-contained page; markdown: the same content for a comment
"""
