"""Planted faults: the toolkit's own power as a number, faults caught out of faults planted, and controls that must pass.

planting    how the production object gets one behaviour replaced
rules       acceptance rules, wrong ones and other right ones
schedules   schedules                          systems   what stands around them: processing, driver, cache
any_order   any-order schedules
outside     rules, drafters and decoders that come without a schedule
table       the rows                           matrix    running them
"""
