"""The paper's protocol (PROTO, METRICS, BOOT) as one resumable run, and the figures that its tables are made of.

plan        what is run: tasks, temperatures, schedules with their widths, starts, caps, draws
prompts     problems as token ids, through the model's chat template where it has one
grading     right or wrong, once for every answer
certifying  may an arm's figures be shown? And where do greedy outputs part, and is that rounding?
estimate    how long and how much memory, before it starts
run         the whole, cell by cell, in a folder that it goes on from
study       what came out, as data without model or tokens
paired      figures of a cell and their paired intervals
"""
